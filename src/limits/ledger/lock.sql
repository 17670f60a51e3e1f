-- Locks buckets for the rest of the transaction, waiting, in one order for all, so that no two claims can deadlock.
-- Striped: 1,024 locks at most, since they share the server's lock table. Read the clock after this, never before.
create or replace function engine.lock(p_buckets bigint[]) returns void language plpgsql as $$
begin
  -- One, as most claims need: an expression, where a query would sort.
  if cardinality(p_buckets) = 1 then
    perform pg_advisory_xact_lock(1397511523, (p_buckets[1] & 1023)::integer);
    return;
  end if;
  perform pg_advisory_xact_lock(1397511523, s.stripe)
  from (select distinct (b & 1023)::integer as stripe from unnest(p_buckets) b order by 1) s;
end $$;

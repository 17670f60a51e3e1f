-- Locks buckets until the transaction ends, and waits for each lock. All callers take them in one order, so that no two
-- claims can deadlock. The locks are striped: at most 1,024, because they take space in the server's lock table. Read
-- the clock after this call, never before.
-- p_buckets: their ids, in any order. Returns true.
create or replace function engine.lock_buckets(p_buckets bigint[]) returns boolean language plpgsql as $$
begin
  -- Most claims lock one bucket, and an expression is cheaper than a query.
  if cardinality(p_buckets) = 1 then
    return pg_advisory_xact_lock(1397511523, (p_buckets[1] & 1023)::integer) is not null;  -- lock: bucket
  end if;
  perform pg_advisory_xact_lock(1397511523, s.stripe)  -- lock: bucket
  from (select distinct (b & 1023)::integer as stripe from unnest(p_buckets) b order by 1) s;
  return true;
end $$;

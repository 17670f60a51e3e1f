-- Locks classes for the rest of the transaction, waiting, in one order for all; before any bucket, so that no two claims
-- can deadlock. Class 0 comes first, alone.
create or replace function engine.enclose(p_classes bigint[]) returns void language plpgsql as $$
begin
  -- One, as most claims need: an expression, where a query would sort.
  if cardinality(p_classes) = 1 then
    perform pg_advisory_xact_lock(1397511524, case when p_classes[1] = 0 then -1 else (p_classes[1] & 1023)::integer end);
    return;
  end if;
  perform pg_advisory_xact_lock(1397511524, s.stripe)
  from (select distinct case when c = 0 then -1 else (c & 1023)::integer end as stripe from unnest(p_classes) c order by 1) s;
end $$;

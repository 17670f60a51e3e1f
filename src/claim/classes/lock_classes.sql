-- Locks classes until the end of the transaction, in one order for all, and waits for each. Call it before locking any
-- bucket, so that no two claims deadlock. Class 0 has a stripe of its own, which comes first. Returns true.
create or replace function engine.lock_classes(p_classes bigint[]) returns boolean language plpgsql as $$
begin
  -- Most claims have one class, and an expression is cheaper than a query.
  if cardinality(p_classes) = 1 then
    return pg_advisory_xact_lock(1397511524,  -- lock: class; of class 0: new classes
      case when p_classes[1] = 0 then -1 else (p_classes[1] & 1023)::integer end) is not null;
  end if;
  perform pg_advisory_xact_lock(1397511524, s.stripe)  -- lock: class
  from (
    select distinct case when c = 0 then -1 else (c & 1023)::integer end as stripe
    from unnest(p_classes) c order by 1) s;
  return true;
end $$;

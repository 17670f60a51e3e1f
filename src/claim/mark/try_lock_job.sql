-- Locks a waiting job for this transaction. Returns false when another transaction has it locked, and then sets
-- sluice.met_locked to yes. That setting lasts for the transaction, which is one claim: what counts jobs after the
-- query that calls this function reads it there, because the query's result has only jobs that were free.
create or replace function engine.try_lock_job(p_place tid) returns boolean language plpgsql as $$
begin
  perform 1 from sluice.job where ctid = p_place for update skip locked;
  if found then return true; end if;
  perform set_config('sluice.met_locked', 'yes', true);
  return false;
end $$;

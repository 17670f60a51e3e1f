-- Locks a waiting job for this transaction. Returns false when another transaction has it locked, and records that
-- until this transaction ends (sluice.met_locked).
create or replace function engine.try_lock_job(p_place tid) returns boolean language plpgsql as $$
begin
  perform 1 from sluice.job where ctid = p_place for update skip locked;
  if found then return true; end if;
  perform set_config('sluice.met_locked', 'yes', true);
  return false;
end $$;

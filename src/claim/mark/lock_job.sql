-- Locks a waiting job for this transaction; false where somebody else has it locked, which is noted until the transaction ends.
create or replace function engine.lock_job(p_place tid) returns boolean language plpgsql as $$
begin
  perform 1 from sluice.job where ctid = p_place for update skip locked;
  if found then return true; end if;
  perform set_config('sluice.held', 'yes', true);
  return false;
end $$;

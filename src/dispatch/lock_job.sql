-- Locks a waiting job for this transaction, and returns false where somebody else has it locked.
create or replace function engine.lock_job(p_place tid) returns boolean language plpgsql as $$
begin
  perform 1 from sluice.job where ctid = p_place for update skip locked;
  return found;
end $$;

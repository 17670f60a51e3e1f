-- Returns the epoch under which Redis must confirm what this transaction grants; null: no limit is in Redis. A
-- transaction that replaces the epoch (engine.replace_redis_epoch) waits for this one, so it sees all that the old
-- epoch granted.
create or replace function engine.lock_redis_epoch() returns text language plpgsql as $$
begin
  if not exists (select 1 from sluice.shared) then return null; end if;
  perform pg_advisory_xact_lock_shared(1397511523, -15);  -- lock: Redis epoch
  -- In a statement of its own, which sees what was committed during the wait.
  return (select s.epoch from sluice.shared s);
end $$;

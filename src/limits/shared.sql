-- The epoch under which what this transaction grants may be asked for in Redis; null: there is none. Who puts another
-- in its place (succeed) waits for this transaction, so that he sees all that was granted under it.
create or replace function engine.shared() returns text language plpgsql as $$
begin
  if not exists (select 1 from sluice.shared) then return null; end if;
  perform pg_advisory_xact_lock_shared(1397511523, -15);
  -- In a statement of its own, which sees what was committed while it waited.
  return (select s.epoch from sluice.shared s);
end $$;

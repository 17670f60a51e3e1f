-- Has claims read again what they leave out because they failed by it, and wakes the workers. False when it is not parked.
-- p_kind: job, lane or bucket; null: any.
-- p_name: as sluice.parked has it.
create or replace function engine.release_parked(p_kind text, p_name text) returns boolean language plpgsql as $$
begin
  delete from sluice.parked where name = p_name and kind = coalesce(p_kind, kind);
  if not found then return false; end if;
  perform pg_notify('sluice.wake', '*');
  return true;
end $$;

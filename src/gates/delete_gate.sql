-- Deletes a gate and wakes the workers; returns false when no gate has this name.
create or replace function engine.delete_gate(p_name text) returns boolean language plpgsql as $$
begin
  delete from sluice.gate where name = p_name;
  if not found then return false; end if;
  perform pg_notify('sluice.wake', '*');
  perform engine.notify_event('paused', jsonb_build_object('name', p_name, 'isPaused', false));
  return true;
end $$;

-- Emits an event as `engine.emit_event` does, unless one of its type was emitted with this key within 24 hours.
-- p_key: 1 to 400 characters; null: it is emitted in any case.
-- Returns the id of the event that was emitted with the key.
create or replace function engine.emit_once(p_id uuid, p_type text, p_event text, p_key text, p_notify boolean)
returns uuid language plpgsql as $$
declare
  -- No task can have this name.
  v_first uuid := (select k from engine.take_idempotency_keys(
    'events emit', array[p_type || ' ' || p_key], array[p_id], 86400) k);
begin
  if v_first = p_id then perform engine.emit_event(p_id, p_type, p_event, p_notify); end if;
  return v_first;
end $$;

-- Emits an event from any language, inside the caller's transaction:
-- `select sluice.emit('orders.order.paid', '{"order": 7}')`. Each service that subscribed to it gets it once.
-- type: the event's type, words of a-z, A-Z, 0-9, `_` and `-`, separated by dots; up to 100 characters.
-- data: its payload, at most 256 KiB of JSON with at most 32 levels.
-- options: a JSON object with any of these:
--   id: a UUIDv7 made within a day of now; emitting it again changes nothing. No event of another type may have it.
--   idempotency_key: a second emit of this type with the same key within 24 hours emits nothing, and returns the id of
--     the first.
--   source: who emits it, a URI reference; default `/sql`.
--   subject: what it is about, up to 512 characters.
--   version: the version of its payload's schema, a whole number from 1.
-- Returns the event's id.
create or replace function sluice.emit(type text, data jsonb, options jsonb default '{}') returns uuid
language plpgsql as $$
declare
  v_event jsonb := engine.make_envelope($1, $2, $3);
begin
  return engine.emit_once(
    (v_event ->> 'id')::uuid, v_event ->> 'type', v_event::text, $3 ->> 'idempotency_key', true);
end $$;

-- Returns the id of the job that delivers an event to a handler of a service: the event's time, and a hash of all. SQL
-- that is inlined: a call would cost as much as the hash.
-- p_origin: the handler's first name.
create or replace function engine.delivery_id(p_event uuid, p_service text, p_origin text) returns uuid
language sql stable as $$
  select encode(overlay(
    set_byte(substr(sha256(convert_to(concat_ws('/', p_event, p_service, p_origin), 'UTF8')), 1, 16), 8, 128)
    placing substr(uuid_send(p_event), 1, 7) from 1 for 7), 'hex')::uuid
$$;

-- Returns the id of the job that delivers an event to a handler of a service: the event's time, and a hash of all.
-- p_origin: the handler's first name.
create or replace function engine.delivery_id(p_event uuid, p_service text, p_origin text) returns uuid
language plpgsql immutable as $$
declare
  v_hash text := encode(sha256(convert_to(concat_ws('/', p_event, p_service, p_origin), 'UTF8')), 'hex');
begin
  return (left(p_event::text, 15) || substr(v_hash, 1, 3) || '-8' || substr(v_hash, 4, 3) || '-'
          || substr(v_hash, 7, 12))::uuid;
end $$;

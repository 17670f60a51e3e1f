-- Checks the parameters of `sluice.emit` (emit_by_sql.sql explains them), and returns the event's envelope.
create or replace function engine.make_envelope(p_type text, p_data jsonb, p_options jsonb) returns jsonb
language plpgsql as $$
declare
  v_data jsonb := coalesce(p_data, 'null');
  v_options jsonb := jsonb_strip_nulls(coalesce(p_options, '{}'));
  v_id text := coalesce(v_options ->> 'id', engine.new_id()::text);
  v_odd text;
begin
  if (p_type ~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$' and length(p_type) <= 100) is not true then
    perform engine.raise_error('SLUICE_BAD_EVENT',
      'the type of an event is 1 to 100 characters: words of a-z, A-Z, 0-9, "_" and "-", separated by "."');
  end if;
  perform engine.check_payload(v_data, 'the payload of an event');
  if jsonb_typeof(v_options) <> 'object' then
    perform engine.raise_error('SLUICE_BAD_OPTION', 'options must be a JSON object, such as {"subject": "7"}');
  end if;
  select k into v_odd from jsonb_object_keys(v_options) k
  where k not in ('id', 'idempotency_key', 'source', 'subject', 'version')
     or jsonb_typeof(v_options -> k) <> case k when 'version' then 'number' else 'string' end limit 1;
  if v_odd is not null then
    perform engine.raise_error('SLUICE_BAD_OPTION', format(
      'there is no option "%s", or it has a wrong type: id, idempotency_key, source and subject are texts, '
      'version is a number',
      left(v_odd, 100)));
  end if;
  if coalesce(length(v_options ->> 'subject') not between 1 and 512, false)
     or coalesce(length(v_options ->> 'source') not between 1 and 512, false)
     or coalesce(length(v_options ->> 'idempotency_key') not between 1 and 400, false)
     or coalesce(v_options ->> 'version' !~ '^[1-9]\d{0,8}$', false) then
    perform engine.raise_error('SLUICE_BAD_OPTION',
      'source and subject have 1 to 512 characters, idempotency_key has 1 to 400; version is a whole number from 1');
  end if;
  if v_id !~* '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'
     or abs(('x' || substr(replace(v_id, '-', ''), 1, 12))::bit(48)::bigint
            - extract(epoch from sluice.now()) * 1000) > 86400000 then
    perform engine.raise_error('SLUICE_BAD_ID', 'id must be a UUIDv7 made within a day of now');
  end if;
  return jsonb_strip_nulls(jsonb_build_object('specversion', '1.0', 'id', lower(v_id),
      'source', coalesce(v_options ->> 'source', '/sql'), 'type', p_type, 'subject', v_options ->> 'subject',
      'schemaversion', (v_options ->> 'version')::integer, 'time', engine.format_utc(sluice.now()),
      'datacontenttype', 'application/json'))
    || jsonb_build_object('data', v_data);
end $$;

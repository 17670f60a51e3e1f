-- Reads and checks the options of `sluice.send` (send_by_sql.sql explains them). An option that is not given is null.
create or replace function engine.read_send_options(
  p_options jsonb, out queue text, out priority integer, out due timestamptz, out expires timestamptz, out tags text[],
  out key text, out id uuid, out notify boolean) language plpgsql as $$
#variable_conflict use_variable
declare
  v_options jsonb;
  v_now timestamptz := sluice.now();
  v_name text;
  v_priority numeric;
  v_wait interval := engine.parse_interval(p_options -> 'max_wait');
begin
  if jsonb_typeof(p_options) <> 'object' then
    perform engine.raise_error('SLUICE_BAD_OPTION', 'options must be a JSON object, such as {"priority": 5}');
  end if;
  v_options := jsonb_strip_nulls(p_options);
  select k into v_name from jsonb_object_keys(p_options) k
  where k not in ('queue', 'priority', 'delay', 'at', 'tags', 'max_wait', 'idempotency_key', 'id', 'notify') limit 1;
  if v_name is not null then
    perform engine.raise_error('SLUICE_BAD_OPTION', format('there is no option "%s"', left(v_name, 100)));
  end if;
  select k into v_name from jsonb_object_keys(v_options) k
  where k in ('queue', 'at', 'idempotency_key', 'id') and jsonb_typeof(v_options -> k) <> 'string' limit 1;
  if v_name is not null then perform engine.raise_error('SLUICE_BAD_OPTION', format('%s must be a text',
    v_name)); end if;
  if jsonb_typeof(v_options -> 'notify') <> 'boolean' then
    perform engine.raise_error('SLUICE_BAD_OPTION', 'notify must be true or false');
  end if;
  notify := coalesce((v_options ->> 'notify')::boolean, true);
  queue := v_options ->> 'queue';
  key := v_options ->> 'idempotency_key';
  if length(key) not between 1 and 512 then
    perform engine.raise_error('SLUICE_BAD_OPTION', 'idempotency_key: 1 to 512 characters');
  end if;
  v_priority := case jsonb_typeof(v_options -> 'priority') when 'number' then (v_options ->> 'priority')::numeric end;
  if v_options ? 'priority' and (v_priority = trunc(v_priority) and abs(v_priority) <= 1000) is not true then
    perform engine.raise_error('SLUICE_BAD_OPTION', 'priority must be a whole number from -1000 to 1000');
  end if;
  priority := v_priority;
  if jsonb_typeof(v_options -> 'tags') <> 'array'
     or jsonb_path_exists(v_options, 'strict $.tags[*] ? (@.type() != "string")', silent => true) then
    perform engine.raise_error('SLUICE_BAD_OPTION', 'tags must be a list of texts');
  end if;
  tags := nullif(array(select jsonb_array_elements_text(v_options -> 'tags')), '{}');
  if cardinality(tags) > 20 or exists (select 1 from unnest(tags) t where t !~ '^[^[:cntrl:]]{1,100}$') then
    perform engine.raise_error('SLUICE_BAD_OPTION', 'tags: up to 20 texts of 1 to 100 characters');
  end if;
  if v_options ?& array['delay', 'at'] then
    perform engine.raise_error('SLUICE_BAD_OPTION', 'give delay or at, not both');
  end if;
  begin
    due := (v_options ->> 'at')::timestamptz;
  exception when data_exception then due := '-infinity'; -- Rejected below.
  end;
  if not isfinite(due) then
    perform engine.raise_error('SLUICE_BAD_OPTION',
      format('at is "%s"; write it as 2030-01-31T12:00:00Z', left(v_options ->> 'at', 100)));
  end if;
  due := coalesce(due, v_now + engine.parse_interval(v_options -> 'delay'));
  if due > v_now + interval '366 days' or v_wait < interval '1 ms' then
    perform engine.raise_error('SLUICE_BAD_OPTION', 'delay, at, max_wait: up to 366 days ahead; max_wait: from 1 ms');
  end if;
  expires := greatest(due, v_now) + v_wait;
  if v_options ? 'id' then
    if (v_options ->> 'id') !~* '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'
       or abs(('x' || substr(replace(v_options ->> 'id', '-', ''), 1, 12))::bit(48)::bigint
              - extract(epoch from v_now) * 1000) > 86400000 then
      perform engine.raise_error('SLUICE_BAD_ID', 'id must be a UUIDv7 made within a day of now');
    end if;
    id := v_options ->> 'id';
  end if;
end $$;

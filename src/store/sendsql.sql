-- Records a job from any language: `select sluice.send('sync-contact', '{"id": 7}', '{"priority": 5}')`. Takes part in the
-- caller's transaction. What needs the task's code (schema, limit keys, rules) a worker that has it applies before the job
-- may run. Options: queue (default: the task's), priority (-1000 to 1000), delay (seconds, or text such as '5 minutes'), at
-- (a time), tags, max_wait (as delay; not begun within it: failed), idempotency_key (24 h), id (a UUIDv7). Returns the id.
create or replace function sluice.send(task text, input jsonb, options jsonb default '{}') returns uuid language plpgsql as $$
#variable_conflict use_column
declare
  v_task text := $1;
  v_input jsonb := coalesce($2, 'null');
  v_options jsonb := coalesce($3, '{}');
  v_now timestamptz := sluice.now();
  v_name text;
  v_queue text;
  v_priority numeric;
  v_due timestamptz;
  v_expires timestamptz;
  v_tags text[];
  v_key text := v_options ->> 'idempotency_key';
  v_id uuid;
begin
  select k into v_name from jsonb_object_keys(v_options) k
  where k not in ('queue', 'priority', 'delay', 'at', 'tags', 'max_wait', 'idempotency_key', 'id') limit 1;
  v_queue := coalesce(v_options ->> 'queue', (select t.queue from sluice.task t where t.name = v_task), 'default');
  v_priority := coalesce((v_options ->> 'priority')::numeric, 0);
  v_tags := array(select jsonb_array_elements_text(v_options -> 'tags'));
  v_id := coalesce((v_options ->> 'id')::uuid, sluice.new_id());
  v_due := coalesce((v_options ->> 'at')::timestamptz, v_now + sluice.span_v1(v_options -> 'delay'));
  v_expires := greatest(v_due, v_now) + sluice.span_v1(v_options -> 'max_wait');
  if v_name is not null then perform sluice.refuse_v1('SLUICE_BAD_OPTION', format('there is no option "%s"', v_name)); end if;
  if v_task !~ '^[A-Za-z0-9._:-]{1,100}$' or v_queue !~ '^[A-Za-z0-9._:-]{1,100}$' then
    perform sluice.refuse_v1('SLUICE_BAD_TASK', 'names of tasks and queues are 1 to 100 of a-z, A-Z, 0-9, ".", "_", "-", ":"');
  end if;
  if v_priority <> trunc(v_priority) or abs(v_priority) > 1000 then
    perform sluice.refuse_v1('SLUICE_BAD_OPTION', 'priority must be a whole number from -1000 to 1000');
  end if;
  if v_due > v_now + interval '366 days' or v_expires > v_now + interval '732 days' then
    perform sluice.refuse_v1('SLUICE_BAD_OPTION', 'delay, at and max_wait reach 366 days at most');
  end if;
  if cardinality(v_tags) > 20 or exists (select 1 from unnest(v_tags) t where t is null or t !~ '^[^[:cntrl:]]{1,100}$') then
    perform sluice.refuse_v1('SLUICE_BAD_OPTION', 'tags: up to 20 texts of 1 to 100 characters');
  end if;
  if octet_length(v_input::text) > 262144 then
    perform sluice.refuse_v1('SLUICE_PAYLOAD_TOO_LARGE', 'an input has 256 KiB at most');
  end if;
  if length(v_key) not between 1 and 512 then
    perform sluice.refuse_v1('SLUICE_BAD_OPTION', 'idempotency_key: 1 to 512 characters');
  end if;
  if substr(v_id::text, 15, 1) <> '7' or abs(('x' || substr(replace(v_id::text, '-', ''), 1, 12))::bit(48)::bigint
       - extract(epoch from v_now) * 1000) > 86400000 then
    perform sluice.refuse_v1('SLUICE_BAD_ID', 'id must be a UUIDv7 made within a day of now');
  end if;
  if v_key is not null then
    select k into v_id from (select v_id as new, k from sluice.keyed_v1(v_task, array[v_key], array[v_id], 86400) k) x where k = new;
    if not found then return (select i.job from sluice.idempotency i where i.task = v_task and i.key = v_key); end if;
  end if;
  if sluice.raw_v1(v_id, v_task, v_queue, v_priority::integer, v_due, nullif(v_tags, '{}'), v_input, v_expires)
     and v_options ? 'id' then
    -- Finished jobs live elsewhere: look there in a statement of its own, which sees what finished meanwhile.
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then perform sluice.unseen_v1(array[v_id]); end if;
    delete from sluice.job j where j.id = v_id
      and (exists (select 1 from sluice.done d where d.id = v_id) or exists (select 1 from sluice.failed f where f.id = v_id));
  end if;
  return v_id;
end $$;

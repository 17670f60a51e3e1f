-- Sends a job from any language, inside the caller's transaction:
-- `select sluice.send('sync-contact', '{"id": 7}', '{"priority": 5}')`. A worker that has the task's code applies its
-- schema, limit keys and rules before the job may start.
-- task: the task's name.
-- input: the job's input, at most 256 KiB of JSON with at most 32 levels.
-- options: a JSON object with any of these:
--   queue: default: the task's queue.
--   priority: -1000 to 1000, higher first; default 0.
--   delay: seconds, or text such as '5 minutes': the job does not start before.
--   at: a time: the job does not start before. Give `delay` or `at`, not both.
--   tags: at most 20 texts of 1 to 100 characters.
--   max_wait: as `delay`, 1 ms or more: no attempt, first or retry, begins later; then the job fails.
--   idempotency_key: a further send with the same key within 24 hours returns the first job's id and sends nothing.
--   id: a UUIDv7 made within a day of now.
--   notify: false: idle workers are not notified, and find the job within some 2 s.
-- Returns the job's id.
create or replace function sluice.send(task text, input jsonb, options jsonb default '{}') returns uuid
language plpgsql as $$
#variable_conflict use_column
declare
  v_task text := $1;
  v_input jsonb := coalesce($2, 'null');
  v_given record;
  v_queue text;
  v_id uuid;
  v_holder uuid;  -- the job that has the idempotency key
  v_present text;  -- the name of the task, if v_task is one that it had before
begin
  select * into v_given from engine.read_send_options(coalesce($3, '{}'));
  v_queue := coalesce(v_given.queue, (select t.queue from sluice.task t where t.name = v_task), 'default');
  v_id := coalesce(v_given.id, engine.new_id());
  if (v_task ~ '^[A-Za-z0-9._:-]{1,100}$' and v_queue ~ '^[A-Za-z0-9._:-]{1,100}$') is not true then
    perform engine.raise_error('SLUICE_BAD_TASK',
      'a name of a task or queue is 1 to 100 of the characters a-z, A-Z, 0-9, ".", "_", "-", ":"');
  end if;
  perform engine.check_payload(v_input, 'an input');
  if v_given.key is not null then
    v_holder := (select k from engine.take_idempotency_keys(v_task, array[v_given.key], array[v_id], 86400) k);
    if v_holder <> v_id then return v_holder; end if;
  end if;
  if engine.send_unchecked(v_id, v_task, v_queue, coalesce(v_given.priority, 0), v_given.due, v_given.tags, v_input,
                v_given.expires, v_given.notify)
     and v_given.id is not null then
    perform engine.delete_repeated_jobs(array[v_id]);
  end if;
  if v_given.id is not null then
    v_present := coalesce((select t.currently from sluice.task t where t.name = v_task), v_task);
    perform engine.check_tasks_of_ids(array[v_id], array[concat_ws(E'\x1f', v_task, v_present, (
      select string_agg(t.name, E'\x1f') from sluice.task t where t.currently = v_present))]);
  end if;
  return v_id;
end $$;

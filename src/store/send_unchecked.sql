-- Inserts a job without the code of its task: no schema, limits or rules have been applied. A worker that has the code
-- applies them before the job may start (worker/admission.ts). What is needed before that (`once`, `on_failed`) is read
-- from sluice.task, where workers have stored it.
-- p_due: the job does not start before this time; null: at once.
-- p_expires: no attempt begins after this time; null: no bound.
-- p_notify: notify idle workers.
-- Returns false if an unfinished job has this id already.
create or replace function engine.send_unchecked(
  p_id uuid, p_task text, p_queue text, p_priority integer, p_due timestamptz, p_tags text[], p_input jsonb,
  p_expires timestamptz default null, p_notify boolean default true) returns boolean language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
  v_due timestamptz := case when p_due > v_now then p_due end;
  v_lane bigint := engine.lane_id(p_queue, p_task, p_priority, 1, null, null);
  v_seq bigint;
begin
  insert into sluice.job (id, lane, priority, created_at, due_at, task, queue, tags, input, expires_at, raw,
    once, on_failed)
  values (p_id, v_lane, p_priority, v_now, v_due, p_task, p_queue, p_tags, p_input, p_expires, true,
    (select t.once from sluice.task t where t.name = p_task),
    (select t.on_failed from sluice.task t where t.name = p_task))
  on conflict (id) do nothing returning seq into v_seq;
  if v_seq is null then return false; end if;
  if v_due is not null then return true; end if;
  insert into sluice.arrival (xid, class, lane, pos, n)
  select pg_current_xact_id(), c.class, v_lane, v_seq, 1 from engine.find_arrival_classes(p_queue, p_task, null) c;
  if p_notify then perform engine.wake_queues(array[p_queue]); end if;
  return true;
end $$;

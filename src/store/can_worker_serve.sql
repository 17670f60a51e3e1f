-- True when an idle worker can begin a job of one of these classes: it serves the class's queue and task, has the
-- labels that the class requires, and has not left the class out because a limit by one of its labels had no room.
-- p_anyway: that limit has room now
create or replace function engine.can_worker_serve(
  p_idle sluice.idle, p_worker sluice.worker, p_classes bigint[], p_anyway boolean default false) returns boolean
language plpgsql stable as $$
begin
  return exists (
    select 1 from sluice.class c where c.id = any (p_classes)
    and (p_worker.queues is null or c.queue = any (p_worker.queues))
    and c.task = any (coalesce(p_idle.tasks, p_worker.tasks))
    and engine.has_labels(p_worker.labels, c.labels)
    and (p_anyway or p_idle.barred is null or c.id <> all (p_idle.barred)));
end $$;

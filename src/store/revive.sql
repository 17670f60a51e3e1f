-- Gives a failed job another round of attempts, behind the jobs that wait in its lane now. Returns false when there is no such failed job.
create or replace function sluice.revive_v1(p_id uuid) returns boolean language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
begin
  with gone as (delete from sluice.failed where id = p_id returning *)
  insert into sluice.job (id, lane, priority, attempt, failed, crashes, ambiguous, created_at, due_at, task, queue, fair, takes, tags, input, error,
    weight, once, on_failed, ruled)
  select id, sluice.lane_id_v1(queue, task, priority, weight, fair, takes), priority,
    attempt, 0, 0, ambiguous, created_at, sluice.now(), task, queue, fair, takes, tags, input, error,
    weight, once, on_failed, ruled from gone;
  if not found then return false; end if;
  perform sluice.wake_v1(array(select j.queue from sluice.job j where j.id = p_id));
  return true;
end $$;

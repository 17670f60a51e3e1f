-- Moves jobs that were just deleted to the archive of failures without another attempt: lost too often or in doubt
-- (rescue), too late to begin (overdue), or sure to be (doom). %s in p_message: when the job expires. Whoever is to hear of
-- it is sent a job.
create or replace function engine.bury(p_jobs sluice.job[], p_reason text, p_code text, p_message text) returns void
language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
begin
  if p_jobs is null then return; end if;
  insert into sluice.failed (id, state, reason, task, queue, priority, attempt, failed, crashes, ambiguous, created_at,
    dispatched_at, started_at, finished_at, fair, takes, costs, tags, input, error, claim, weight, once, on_failed, ruled, raw)
  select id, 'failed', p_reason, task, queue, priority, attempt, failed, crashes, ambiguous, created_at, dispatched_at,
    dispatched_at, v_now, fair, takes, costs, tags, input, jsonb_build_object('code', p_code, 'message', format(p_message, engine.utc(expires_at))), claim,
    weight, once, coalesce(on_failed, case when raw then (select t.on_failed from sluice.task t where t.name = task) end), ruled, raw
  from unnest(p_jobs);
  perform engine.fallout(array(select j.id from unnest(p_jobs) j where j.on_failed is not null or j.raw));
end $$;

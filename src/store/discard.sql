-- Records a job that is not to run, by a rule at send: cancelled, with the reason. One that is known already is left alone.
create or replace function engine.discard(
  p_id uuid, p_task text, p_queue text, p_priority integer, p_tags text[], p_input jsonb, p_reason text, p_ruled jsonb)
returns void language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
begin
  if exists (select 1 from sluice.job j where j.id = p_id) or exists (select 1 from sluice.failed f where f.id = p_id) then return; end if;
  insert into sluice.done (id, state, reason, task, queue, priority, attempt, failed, crashes, ambiguous, created_at, finished_at,
    tags, input, ruled)
  values (p_id, 'cancelled', p_reason, p_task, p_queue, p_priority, 0, 0, 0, false, v_now, v_now, p_tags, p_input, p_ruled)
  on conflict (id) do nothing;
end $$;

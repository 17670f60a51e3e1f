-- Cancels an unfinished job. A running attempt is fenced off: what it still does changes nothing here.
-- Returns false when there is no such unfinished job.
create or replace function engine.cancel(p_id uuid, p_reason text) returns boolean language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v_claim uuid;
begin
  perform engine.counting();
  select claim into v_claim from sluice.job where id = p_id for update;
  perform engine.ended(array[p_id], array[v_claim], '{f}');
  with gone as (delete from sluice.job where id = p_id returning *)
  insert into sluice.done (id, state, reason, task, queue, priority, attempt, failed, crashes, ambiguous, created_at,
    dispatched_at, finished_at, fair, takes, costs, tags, input, error, claim, weight, once, on_failed, ruled)
  select id, 'cancelled', p_reason, task, queue, priority, attempt, failed, crashes, ambiguous or claim is not null, created_at,
    dispatched_at, sluice.now(), fair, takes, costs, tags, input, error, claim, weight, once, on_failed, ruled from gone;
  return found;
end $$;

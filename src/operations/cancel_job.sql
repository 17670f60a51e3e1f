-- Cancels an unfinished job. A running attempt is fenced off: what it still does changes nothing here. A job that was
-- granted ahead of time is called back; it may begin before its worker is notified, so it is in doubt, too. Returns
-- false when there is no such unfinished job. It waits at most three seconds for a lock: while it waits, it holds off
-- new definitions, and they the ends of attempts.
-- p_states: cancel it only in one of these states; null: in any
create or replace function engine.cancel_job(p_id uuid, p_reason text, p_states text[] default null)
  returns boolean language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '3s' as $$
declare
  v_now timestamptz := sluice.now();
  v_job sluice.job;
  v_report text;
  v_endings engine.ending[];
begin
  perform engine.lock_definitions();
  select * into v_job from sluice.job where id = p_id for update;
  if engine.state_of_job(v_job) <> all (p_states) then return false; end if;
  perform engine.release_attempts(array[p_id], array[v_job.claim], '{f}');
  if engine.is_granted_ahead(v_job) then
    update sluice.job set dispatched_at = least(dispatched_at, v_now) where id = p_id;  -- no later than its end
    perform engine.call_back_grants_ahead(array[p_id::text]);
  end if;
  v_report := (select engine.attempt_report(j.dispatched_at, v_now, w.id, w.host, w.version) from sluice.job j
    join sluice.claim c on c.id = j.claim join sluice.worker w on w.id = c.worker where j.id = p_id);
  with gone as (
    delete from sluice.job j where j.id = p_id
    returning row(j, 'cancelled', p_reason, j.attempt, j.failed, j.ambiguous or j.claim is not null,
                  case when j.claim is not null then j.dispatched_at end, j.error,
                  engine.append_attempt(j, 'cancelled', null, v_report, null, null), j.notes)::engine.ending as ending
  )
  select array_agg(ending) into v_endings from gone;
  perform engine.append_history('done', v_endings);
  return v_endings is not null;
end $$;

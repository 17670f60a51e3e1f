-- Moves jobs that were just deleted to the archive of failures without another attempt: lost too often or in doubt
-- (rescue), too late to begin (overdue), or sure to be (doom). %s in p_message: when the job expires. Whoever is to hear of
-- it is sent a job.
create or replace function engine.bury(p_jobs sluice.job[], p_reason text, p_code text, p_message text) returns void
language plpgsql as $$
begin
  if p_jobs is null then return; end if;
  perform engine.append_history('failed', array(
    select row(j, 'failed', p_reason, j.attempt, j.failed, j.ambiguous, j.dispatched_at,
      jsonb_build_object('code', p_code, 'message', format(p_message, engine.utc(j.expires_at))))::engine.ending
    from unnest(p_jobs) j));
  perform engine.fallout(array(select j.id from unnest(p_jobs) j where j.on_failed is not null or j.raw));
end $$;

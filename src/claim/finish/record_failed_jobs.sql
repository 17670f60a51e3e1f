-- Records jobs that were just deleted as failed without another attempt: lost too often or in doubt
-- (`engine.rescue_worker`), too late to begin (`engine.expire_overdue_jobs`), unable to begin in time
-- (`engine.expire_hopeless_jobs`), or too expensive for their limits (`engine.refuse_expensive_jobs`). It sends the
-- jobs that their tasks want for failures (`engine.send_failure_jobs`).
-- p_jobs: the deleted jobs. Null: none.
-- p_reason: the reason of the failure.
-- p_code: the code of the error.
-- p_message: the message of the error; %s stands for the time at which the job expires.
create or replace function engine.record_failed_jobs(p_jobs sluice.job[], p_reason text, p_code text, p_message text)
returns void
language plpgsql as $$
begin
  if p_jobs is null then return; end if;
  perform engine.append_history('failed', array(
    select row(j, 'failed', p_reason, j.attempt, j.failed, j.ambiguous, j.dispatched_at,
      jsonb_build_object('code', p_code, 'message', format(p_message, engine.format_utc(j.expires_at))),
      j.attempts, j.notes)::engine.ending
    from unnest(p_jobs) j));
  perform engine.notify_event('exhausted', jsonb_build_object('task', f.task, 'jobs', f.n, 'job', f.job,
      'reason', p_reason, 'error', jsonb_build_object('code', p_code,
        'message', format(p_message, engine.format_utc(f.expires_at)))))
    from (select j.task, count(*) as n, min(j.id::text) as job, min(j.expires_at) as expires_at
          from unnest(p_jobs) j group by j.task) f;
  perform engine.send_failure_jobs(array(select j.id from unnest(p_jobs) j where j.on_failed is not null or j.raw));
end $$;

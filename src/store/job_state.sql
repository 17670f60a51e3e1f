-- Returns the state of an unfinished job. A job that was granted for an instant still to come waits until then.
create or replace function engine.job_state(p_job sluice.job) returns text language sql stable as $$
  select case when p_job.claim is not null and p_job.dispatched_at <= sluice.now() then 'running'
              when p_job.claim is null and p_job.due_at < 'infinity' then 'scheduled' else 'waiting' end
$$;

-- Returns when a job is due that is not due yet; null for any other job. A due_at that is set does not show that the
-- job is scheduled: claims clear it some time after the job is due (`engine.promote_due_jobs`), and never without
-- workers.
-- p_job: an unfinished job.
create or replace function engine.scheduled_until(p_job sluice.job) returns timestamptz language plpgsql as $$
begin
  return case when p_job.claim is null and p_job.due_at < 'infinity' and p_job.due_at > sluice.now()
              then p_job.due_at end;
end $$;

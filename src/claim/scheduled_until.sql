-- Returns when a job is due that is not due yet; null for any other job. A claim notes later, or without workers never,
-- that a job is due (`engine.promote_due_jobs`), so due_at alone does not show it.
-- p_job: an unfinished job.
create or replace function engine.scheduled_until(p_job sluice.job) returns timestamptz language plpgsql as $$
begin
  return case when p_job.claim is null and p_job.due_at < 'infinity' and p_job.due_at > sluice.now()
              then p_job.due_at end;
end $$;

-- Returns the jobs of revoked calls that are to be cancelled: those that have not begun, or do not run at present, and
-- those that are to be stopped.
select c.job::text as job from sluice.celery_call c join sluice.job j on j.id = c.job
where c.replied_at is null and c.revoked_at is not null and (c.terminated or engine.state_of_job(j) <> 'running')

-- Returns the jobs of calls that have no result yet.
-- $1 Celery's ids
select c.job::text as job from sluice.celery_call c where c.id = any ($1::text[]) and c.replied_at is null

-- Records calls of Celery producers, each with the id that its job will have. Returns a row for each, in any order: the
-- job's id, which is an older one if the call was recorded before, and whether its result was sent.
-- $1 Celery's ids, $2 ids for their jobs, $3 what their ends lead to, as JSON
with fresh as (
  insert into sluice.celery_call (id, job, call, created_at)
  select u.id, u.job, u.call::jsonb, sluice.now() from unnest($1::text[], $2::uuid[], $3::text[]) u (id, job, call)
  order by u.id on conflict (id) do nothing returning id, job
)
select u.id, coalesce(f.job, c.job)::text as job, c.replied_at is not null as over
from unnest($1::text[]) u (id)
left join fresh f on f.id = u.id
left join sluice.celery_call c on c.id = u.id

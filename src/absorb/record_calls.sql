-- Records calls of Celery producers, each with the id that its job will have. Returns a row for each, in any order: the
-- job's id, which is an older one if the call was recorded before (null: another transaction records it now); whether
-- it was recorded before; whether its job was sent then; whether its result was sent; whether it was revoked before.
-- A call whose job was not sent within 23 hours, because its reader was killed, gets a new id: ids of jobs are accepted
-- within a day.
-- $1 Celery's ids, $2 ids for their jobs, $3 what their ends lead to, as JSON
with given as materialized (
  select distinct on (u.id) u.id, u.job, u.call::jsonb as call
  from unnest($1::text[], $2::uuid[], $3::text[]) u (id, job, call) order by u.id
), fresh as (
  insert into sluice.celery_call (id, job, call, created_at)
  select g.id, g.job, g.call, sluice.now() from given g order by g.id on conflict (id) do nothing returning id, job
), known as materialized (
  select c.id, c.job, c.created_at, c.replied_at,
    exists (select 1 from sluice.job j where j.id = c.job) or exists (select 1 from sluice.done d where d.id = c.job)
      or exists (select 1 from sluice.failed f where f.id = c.job) as sent
  from given g join sluice.celery_call c on c.id = g.id
), renewed as (
  update sluice.celery_call c set job = g.job, call = g.call, created_at = sluice.now()
  from known k join given g on g.id = k.id
  where c.id = k.id and c.job = k.job and c.replied_at is null and not k.sent
    and k.created_at < sluice.now() - interval '23 hours'
  returning c.id, c.job
)
select g.id, coalesce(f.job, r.job, k.job)::text as job, k.id is not null as known, coalesce(k.sent, false) as sent,
  k.replied_at is not null and k.job is not null as over, k.id is not null and k.job is null as revoked
from given g
left join fresh f on f.id = g.id
left join renewed r on r.id = g.id
left join known k on k.id = g.id

-- Deletes calls whose results were sent so long ago that no broker delivers them again, and calls as old that have no
-- job: it was never sent, or is deleted, so they have no result either. At most 5,000 of each.
-- $1 days
with time as (
  select sluice.now() - $1::integer * interval '1 day' as before
), old as (
  (select c.id from time, sluice.celery_call c where c.replied_at < time.before limit 5000)
  union all
  (select c.id from time, sluice.celery_call c
   where c.replied_at is null and c.created_at < time.before
     and not exists (select 1 from sluice.job j where j.id = c.job)
     and not exists (select 1 from sluice.done d where d.id = c.job)
     and not exists (select 1 from sluice.failed f where f.id = c.job)
   order by c.n limit 5000)
)
delete from sluice.celery_call where id in (select id from old)

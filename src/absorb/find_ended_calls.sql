-- Looks at calls of Celery producers that have no result yet, in order. Returns the number of the last one (last; null:
-- there are none), and a row for each one whose job has ended.
-- $1 number of the call after which to begin, $2 how many to look at
with open as materialized (
  select c.n, c.id, c.job, c.call from sluice.celery_call c
  where c.replied_at is null and c.n > $1::bigint order by c.n limit $2::integer
)
select l.last, e.id, e.job::text, e.call::text, e.state, e.reason, e.result::text, e.error::text
from (select max(n) as last from open) l
left join lateral (
  select o.id, o.job, o.call, h.state, h.reason, h.result, h.error
  from open o cross join lateral (
    (select d.state, d.reason, d.result, d.error from sluice.done d where d.id = o.job limit 1)
    union all
    (select f.state, f.reason, f.result, f.error from sluice.failed f where f.id = o.job limit 1) limit 1) h
  where not exists (select 1 from sluice.job j where j.id = o.job)) e on true

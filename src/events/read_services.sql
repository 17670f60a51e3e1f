-- Returns the handlers of all services, and for each service how many of its deliveries wait for a retry, by their
-- failures, and how many failed for good. $1: counts go so far; of the failed jobs the newest 10,000 are looked at.
with late as (
  select j.input ->> 'service' as service, j.input ->> 'handler' as handler, j.failed
  from (select * from sluice.job where due_at is not null order by due_at limit $1) j
  where j.task like 'events:%' and j.failed > 0
), dead as (
  select f.input ->> 'service' as service, f.input ->> 'handler' as handler
  from (select * from sluice.failed order by id desc limit $1) f where f.task like 'events:%'
)
select s.service, s.handler, s.pattern, s.task, s.queue, s.since, s.phase = 4 as is_caught_up, s.seen_at,
  s.seen_at > sluice.now() - interval '15 s' as is_live,
  coalesce((select json_object_agg(l.failed, l.n order by l.failed) from (
    select failed, count(*) as n from late where late.service = s.service and late.handler = s.handler
    group by failed) l), '{}') as retrying,
  (select count(*) from dead d where d.service = s.service and d.handler = s.handler)::integer as archived
from sluice.subscription s
order by s.service, s.handler

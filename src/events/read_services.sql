-- Returns the handlers of all services, and for each service how many of its deliveries wait for a retry, by their
-- failures, and how many failed for good. $1: how far it counts; of the failed jobs it reads the newest 10,000.
with late as materialized (
  select * from engine.count_event_retries($1)
), dead as (
  select f.input ->> 'service' as service, f.input ->> 'handler' as handler
  from (select * from sluice.failed order by id desc limit $1) f where f.task like 'events:%'
)
select s.service, s.handler, s.pattern, s.task, s.queue, s.since, s.phase = 4 as is_caught_up, s.seen_at,
  exists (select 1 from sluice.worker w where s.task = any (w.tasks)) as is_live,
  coalesce((select json_object_agg(l.failed, l.n order by l.failed) from late l
    where l.service = s.service and l.handler = s.handler), '{}') as retrying,
  (select count(*) from dead d where d.service = s.service and d.handler = s.handler)::integer as archived
from sluice.subscription s
order by s.service, s.handler

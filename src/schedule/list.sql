-- Schedules by name, with the newest record of each.
select s.name, s.task, s.spec, s.next_at, s.paused_at, s.defined_at, s.error, sluice.now() as now,
       f.at as last_at, f.until as last_until, f.outcome as last_outcome, f.job as last_job
from sluice.schedule s
left join lateral (select * from sluice.firing f where f.schedule = s.name order by f.at desc limit 1) f on true
order by s.name

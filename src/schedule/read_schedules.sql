-- Reads all schedules by name, with the newest record of each.
select s.name, s.task, s.spec, engine.unix_ms(s.next_at) as next_ms, engine.unix_ms(s.paused_at) as paused_ms,
       engine.unix_ms(s.defined_at) as defined_ms, s.error, engine.unix_ms(sluice.now()) as now_ms,
       engine.unix_ms(f.at) as last_ms, engine.unix_ms(f.until) as last_until_ms, f.outcome as last_outcome,
       f.job as last_job
from sluice.schedule s
left join lateral (select * from sluice.firing f where f.schedule = s.name order by f.at desc limit 1) f on true
order by s.name

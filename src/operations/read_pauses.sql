-- Reads what holds jobs back, now or at other times: gates, and limits that are paused.
select g.name, g.queues, g.tasks, null as "limit", null as key, g.zone, g.days, g.from_min, g.to_min, g.reason, g.by,
       engine.unix_ms(g.created_at) as created_ms,
       engine.is_gate_closed(g, n.now) as closed, engine.unix_ms(engine.find_gate_opening(g, n.now)) as until_ms
from (select sluice.now() as now offset 0) n, sluice.gate g
where g.alive_until is null or g.alive_until > n.now
union all
select 'pause:limit:' || p.name || case when p.key = '' then '' else ':' || p.key end, null, null, p.name,
       nullif(p.key, ''),
       null, null, null, null, p.reason, p.by, engine.unix_ms(p.created_at), true, null
from sluice.limit_pause p
order by 1

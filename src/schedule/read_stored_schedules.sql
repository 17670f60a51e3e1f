-- Reads the store's clock and these schedules; one row without a name if there are none.
-- $1 names
select (extract(epoch from c.now) * 1000)::bigint as now_ms, s.name, s.timing, s.spec,
       s.paused_at is not null as paused, (extract(epoch from s.next_at) * 1000)::bigint as next_ms,
       (extract(epoch from s.last_at) * 1000)::bigint as last_ms
from (select sluice.now() as now) c left join sluice.schedule s on s.name = any ($1)

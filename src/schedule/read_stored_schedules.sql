-- Reads the store's clock and these schedules; one row without a name if there are none.
-- $1 names
select engine.unix_ms(c.now) as "nowMs", s.name, s.timing, s.spec, s.paused_at is not null as paused,
       engine.unix_ms(s.next_at) as "nextMs", engine.unix_ms(s.last_at) as "lastMs"
from (select sluice.now() as now) c left join sluice.schedule s on s.name = any ($1)

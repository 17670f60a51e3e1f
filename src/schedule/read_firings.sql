-- Reads the outcomes of a schedule's newest instants, the newest first.
-- $1 name
-- $2 how many
select engine.unix_ms(f.at) as at_ms, engine.unix_ms(f.until) as until_ms, f.outcome, f.job
from sluice.firing f where f.schedule = $1 order by f.at desc limit $2

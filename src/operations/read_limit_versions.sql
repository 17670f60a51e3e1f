-- Reads the versions of a limit that were in force, the newest first.
-- $1 the limit's name, $2 how many at most
select version, spec, source, by, reason, engine.unix_ms(created_at) as at_ms
from sluice.limit_def where name = $1 order by version desc limit $2

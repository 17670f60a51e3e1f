-- Reads the versions of a limit that were in force, the newest first.
-- $1 the limit's name, $2 how many at most, $3 of this key; '': of all keys that have none of their own
select version, spec, source, by, reason, engine.unix_ms(created_at) as at_ms
from sluice.limit_def where name = $1 and key = $3 order by version desc limit $2

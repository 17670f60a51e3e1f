-- Reads which keys a limit has: those of its pool's members (null: it is no pool), and whether it has any others.
-- $1: its name
select d.members, coalesce((d.spec ->> 'keyed')::boolean, false) or d.label is not null as keyed
from sluice.limit_def d where d.name = $1 order by d.version desc limit 1

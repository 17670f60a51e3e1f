-- Finds events by the beginning of their id, the newest first.
-- $1, $2: the first and the last id
-- $3: how many at most
select e.id, e.type from sluice.emitted e where e.id between $1::uuid and $2::uuid order by e.id desc limit $3::integer

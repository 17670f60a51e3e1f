-- What became of a schedule's newest instants, the newest first.
-- $1 name, $2 how many
select f.at, f.until, f.outcome, f.job from sluice.firing f where f.schedule = $1 order by f.at desc limit $2

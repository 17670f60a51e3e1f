-- Records how many stuck handlers a worker has.
-- $1 worker, $2 how many
update sluice.worker set stuck = $2 where id = $1

-- Records how many stuck handlers a worker has, and how many attempts it can run at once.
-- $1 worker, $2 stuck handlers, $3 slots
update sluice.worker set stuck = $2, slots = $3 where id = $1

-- Counts up a worker's beat. If it returns no row, the worker was given up, and must register again.
-- $1: the worker's id
update sluice.worker set beat = beat + 1 where id = $1 returning id

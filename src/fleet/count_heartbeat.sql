-- Counts a worker's sign of life. Without a row in the answer the worker was given up, and must register again.
-- $1: the worker's id
update sluice.worker set beat = beat + 1 where id = $1 returning id

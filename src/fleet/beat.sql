-- A worker's sign of life. No row: it was given up, and must register anew.
-- $1 worker
update sluice.worker set beat = beat + 1 where id = $1 returning id

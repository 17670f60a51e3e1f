-- Deletes a schedule and its records; jobs that it sent stay. Returns a row if there was one.
-- $1 name
with gone as (delete from sluice.firing where schedule = $1)
delete from sluice.schedule where name = $1 returning name

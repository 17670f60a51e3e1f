-- A taker waits no longer.
-- $1 its id in the line
delete from sluice.taker where id = $1

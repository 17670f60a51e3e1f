-- Removes a taker that waits no longer from the lines of its buckets.
-- $1 the taker's id in the line
delete from sluice.taker where id = $1

-- Removes a taker from the lines of its buckets, because it no longer waits.
-- $1 the taker's id in the line
delete from sluice.taker where id = $1

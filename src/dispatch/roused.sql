-- Lanes that wait for a limit whose definition changed are looked at again: the new one may have room.
-- $1 name
update sluice.wait set due = 0 where bucket in (select id from sluice.bucket where name = $1)

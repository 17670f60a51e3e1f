-- Lanes that wait for a limit whose definition changed are looked at again: the new one may have room.
-- $1 name
update sluice.list set due = 0 where id in (select id from sluice.bucket where name = $1)

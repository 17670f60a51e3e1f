-- Returns the epoch of the state in Redis that counts, under which owner this database takes part in it, and the number
-- of databases that do. No row: no process was given a Redis.
select epoch, owner, stores from sluice.shared

-- Records why the jobs of a schedule could not be made. The next firing clears it.
-- $1 name
-- $2 the error
update sluice.schedule set error = $2 where name = $1

-- Records why the jobs of a schedule could not be sent, unless another transaction has locked it, or another process
-- has fired it meanwhile. The next firing clears it.
-- $1 name
-- $2 the error
update sluice.schedule set error = $2
where name in (select name from sluice.schedule where name = $1 and next_at <= sluice.now() for update skip locked)

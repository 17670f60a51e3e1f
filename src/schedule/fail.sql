-- Notes why a schedule's jobs could not be made; its next firing takes the note away.
-- $1 name, $2 the error
update sluice.schedule set error = $2 where name = $1

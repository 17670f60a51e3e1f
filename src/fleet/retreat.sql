-- Takes a worker that claims no more off the list of those who are called. $1: it
delete from sluice.idle where worker = $1

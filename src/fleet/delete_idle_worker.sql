-- Deletes a worker that claims no more from the idle workers, so that it is not notified. $1: its id
delete from sluice.idle where worker = $1

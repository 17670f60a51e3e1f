-- Pauses a schedule; one that is paused already stays as it is. Returns a row if there is such a schedule.
-- $1 name
update sluice.schedule set paused_at = coalesce(paused_at, sluice.now()) where name = $1 returning name

-- Pauses a schedule, or does nothing to one that is paused. Returns a row when there is such a schedule.
-- $1 name
update sluice.schedule set paused_at = coalesce(paused_at, sluice.now()) where name = $1 returning name

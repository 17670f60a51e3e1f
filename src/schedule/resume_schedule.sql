-- Resumes a paused schedule from a later instant, unless it has another timing, or has advanced, since it was read.
-- Returns a row if it did.
-- $1 name
-- $2 the timing that was read
-- $3 the next instant, in ms since 1970
-- $4 last handled instant that was read, in ms since 1970; null: none
update sluice.schedule set paused_at = null, next_at = to_timestamp($3::bigint / 1e3)
where name = $1 and timing = $2 and paused_at is not null
  and last_at is not distinct from to_timestamp($4::bigint / 1e3)
returning name

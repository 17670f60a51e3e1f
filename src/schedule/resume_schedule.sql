-- Resumes a paused schedule from a later instant, unless its timing has changed since it was read. Returns a row if it
-- did.
-- $1 name
-- $2 the timing that was read
-- $3 the next instant, in ms since 1970
update sluice.schedule set paused_at = null, next_at = to_timestamp($3::bigint / 1e3)
where name = $1 and timing = $2 and paused_at is not null returning name

-- Goes on with a paused schedule from a later instant, unless something has changed since it was read.
-- $1 name, $2 timing that was read, $3 the instant in ms
update sluice.schedule set paused_at = null, next_at = to_timestamp($3::bigint / 1e3)
where name = $1 and timing = $2 and paused_at is not null returning name

-- Returns how long ahead of time units are granted at most, in microseconds (engine.grant_ahead). As `aheadMostUs` in
-- limits/margin.ts.
create or replace function engine.most_ahead_us() returns bigint language sql immutable as 'select 200000::bigint';

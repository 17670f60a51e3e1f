-- Returns by how many seconds the clocks of a zone are ahead of UTC.
-- p_at: the time, in seconds since 1970.
create or replace function engine.zone_offset_s(p_zone text, p_at bigint) returns integer language sql stable as $$
  select extract(epoch from (to_timestamp(p_at) at time zone p_zone) - (to_timestamp(p_at) at time zone 'UTC'))::integer
$$;

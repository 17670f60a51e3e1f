-- So many seconds the wall clock of a zone is before UTC at a time (seconds since 1970).
create or replace function engine.offset(p_zone text, p_at bigint) returns integer language sql stable as $$
  select extract(epoch from (to_timestamp(p_at) at time zone p_zone) - (to_timestamp(p_at) at time zone 'UTC'))::integer
$$;

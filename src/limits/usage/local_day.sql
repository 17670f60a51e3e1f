-- Returns the date that the clocks of a zone show; the date of UTC if the server does not know the zone (any more).
-- p_zone: null: UTC.
-- p_at: the time, in seconds since 1970.
create or replace function engine.local_day(p_zone text, p_at bigint) returns date language plpgsql stable as $$
begin
  if coalesce(p_zone, 'UTC') = 'UTC' then return (to_timestamp(p_at) at time zone 'UTC')::date; end if;
  return (to_timestamp(p_at) at time zone p_zone)::date;
exception when data_exception then
  return (to_timestamp(p_at) at time zone 'UTC')::date;
end $$;

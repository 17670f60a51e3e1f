-- Returns what the wall clock of a zone shows at p_at; null when the server does not know the zone. It may have known
-- the zone before, because its tables of zones change.
create or replace function engine.wall_time_in_zone(p_zone text, p_at timestamptz) returns timestamp
language plpgsql stable as $$
begin
  return p_at at time zone p_zone;
exception when invalid_parameter_value then return null;
end $$;

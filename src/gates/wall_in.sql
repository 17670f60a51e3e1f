-- What the clocks of a zone show at a time; null when the server does not know the zone (any more: its tables change).
create or replace function engine.wall_in(p_zone text, p_at timestamptz) returns timestamp language plpgsql stable as $$
begin
  return p_at at time zone p_zone;
exception when invalid_parameter_value then return null;
end $$;

-- True when a gate is closed at p_at by the wall clock of its zone, and while the server does not know the zone.
create or replace function engine.is_gate_closed(p_gate sluice.gate, p_at timestamptz) returns boolean
language plpgsql stable as $$
declare
  v_wall timestamp := engine.wall_time_in_zone(p_gate.zone, p_at);
  v_day integer := extract(isodow from v_wall);
  v_min integer := extract(hour from v_wall) * 60 + extract(minute from v_wall);
begin
  if p_gate.from_min is null or v_wall is null then return true; end if;
  if p_gate.from_min < p_gate.to_min then
    return v_min < p_gate.from_min or v_min >= p_gate.to_min or coalesce(v_day <> all (p_gate.days), false);
  end if;
  -- Hours after midnight belong to the day before.
  return not ((v_min >= p_gate.from_min and coalesce(v_day = any (p_gate.days), true))
           or (v_min < p_gate.to_min and coalesce((v_day + 5) % 7 + 1 = any (p_gate.days), true)));
end $$;

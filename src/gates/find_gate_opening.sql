-- Returns when a gate opens next: p_at if it is open then; null if no time opens it, or while the server does not know
-- its zone. A gate opens when the wall clock of its zone shows the hour at which it opens, or when that clock is set
-- forward or back to where the gate is open. The function looks at all such moments of the next 16 days, because the
-- hours of a gate that opens one day a week may fall into a gap of the clock.
create or replace function engine.find_gate_opening(p_gate sluice.gate, p_at timestamptz) returns timestamptz
language plpgsql stable as $$
declare
  v_days constant integer := 16;
  v_at bigint := floor(extract(epoch from p_at));
  v_midnight timestamp := date_trunc('day', engine.wall_time_in_zone(p_gate.zone, p_at));
  v_offsets integer[] := '{}';
  v_set bigint[] := '{}';  -- when the clock is set, in seconds since 1970
  v_low bigint;
  v_high bigint;
  v_mid bigint;
begin
  if p_gate.from_min is null or v_midnight is null then return null; end if;
  if not engine.is_gate_closed(p_gate, p_at) then return p_at; end if;
  for d in 0 .. v_days loop
    v_high := v_at + d * 86400;
    v_offsets := v_offsets || engine.zone_offset_s(p_gate.zone, v_high);
    continue when d = 0 or v_offsets[d + 1] = v_offsets[d];
    v_low := v_high - 86400;
    while v_high - v_low > 1 loop
      v_mid := (v_low + v_high) / 2;
      if engine.zone_offset_s(p_gate.zone, v_mid) = v_offsets[d] then v_low := v_mid; else v_high := v_mid; end if;
    end loop;
    v_set := v_set || v_high;
  end loop;
  return (
    select min(to_timestamp(m.at)) from (
      select unnest(v_set) as at
      union
      select (extract(epoch from v_midnight) + d * 86400 + p_gate.from_min * 60 - o)::bigint
      from generate_series(-1, v_days) d cross join (select distinct unnest(v_offsets)) u (o)) m
    where m.at > v_at and not engine.is_gate_closed(p_gate, to_timestamp(m.at)));
end $$;

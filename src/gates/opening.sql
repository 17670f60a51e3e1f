-- When a gate opens next, p_at if it is open; null: not by time, as while the server does not know its zone. The wall clock shows the hour at which it opens, or it is
-- set forward or back to where it is open: so these moments of the next days are all that it can be. Of 16 days, since the
-- hours of the only day of a week may fall into a gap.
create or replace function engine.opening(p_gate sluice.gate, p_at timestamptz) returns timestamptz language plpgsql stable as $$
declare
  v_days constant integer := 16;
  v_at bigint := floor(extract(epoch from p_at));
  v_midnight timestamp := date_trunc('day', engine.wall_in(p_gate.zone, p_at));
  v_offsets integer[] := '{}';
  v_set bigint[] := '{}';  -- when the clock is set
  v_low bigint;
  v_high bigint;
  v_mid bigint;
begin
  if p_gate.from_min is null or v_midnight is null then return null; end if;
  if not engine.shut(p_gate, p_at) then return p_at; end if;
  for d in 0 .. v_days loop
    v_high := v_at + d * 86400;
    v_offsets := v_offsets || engine.offset(p_gate.zone, v_high);
    continue when d = 0 or v_offsets[d + 1] = v_offsets[d];
    v_low := v_high - 86400;
    while v_high - v_low > 1 loop
      v_mid := (v_low + v_high) / 2;
      if engine.offset(p_gate.zone, v_mid) = v_offsets[d] then v_low := v_mid; else v_high := v_mid; end if;
    end loop;
    v_set := v_set || v_high;
  end loop;
  return (
    select min(to_timestamp(m.at)) from (
      select unnest(v_set) as at
      union
      select (extract(epoch from v_midnight) + d * 86400 + p_gate.from_min * 60 - o)::bigint
      from generate_series(-1, v_days) d cross join (select distinct unnest(v_offsets)) u (o)) m
    where m.at > v_at and not engine.shut(p_gate, to_timestamp(m.at)));
end $$;

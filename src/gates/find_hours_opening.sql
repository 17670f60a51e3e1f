-- Returns when these hours open next, or null while they are open. Hours that do not open within 16 days are looked at
-- again in a day.
-- The parameters are columns of sluice.gate.
-- at: when they open, in microseconds since 1970
-- left_us: the time until then, in microseconds
create or replace function engine.find_hours_opening(
  p_zone text, p_days smallint[], p_from_min integer, p_to_min integer, out at bigint, out left_us bigint)
language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
  v_gate sluice.gate := row('', null, null, p_zone, p_days, p_from_min, p_to_min, '', '', v_now, null);
begin
  if not engine.is_gate_closed(v_gate, v_now) then return; end if;
  at := ceil(extract(epoch from coalesce(engine.find_gate_opening(v_gate, v_now), v_now + interval '1 day')) * 1000000);
  left_us := at - floor(extract(epoch from v_now) * 1000000);
end $$;

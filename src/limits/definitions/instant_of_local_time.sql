-- Returns when the clocks of a zone first show a local time or a later one: where the clocks are set forward past that
-- local time, the instant at which they are set. In microseconds, after 1970. core/zone.ts does the same.
-- p_zone: IANA name.
-- p_wall: the local time, in microseconds since 1970 as if it were UTC.
create or replace function engine.instant_of_local_time(p_zone text, p_wall bigint)
returns bigint language plpgsql stable as $$
declare
  v_before bigint := engine.zone_offset_s(p_zone, p_wall / 1000000 - 86400);
  v_after bigint;
  v_low bigint := p_wall - v_before * 1000000;
  v_high bigint := v_low;
  v_mid bigint;
begin
  if engine.zone_offset_s(p_zone, v_high / 1000000) = v_before then return v_high; end if;
  v_after := engine.zone_offset_s(p_zone, p_wall / 1000000 + 86400);
  v_low := p_wall - v_after * 1000000;
  if engine.zone_offset_s(p_zone, v_low / 1000000) = v_after then return v_low; end if;
  v_low := v_low / 1000000;
  v_high := (v_high + 999999) / 1000000;
  while v_high - v_low > 1 loop
    v_mid := (v_low + v_high) / 2;
    if engine.zone_offset_s(p_zone, v_mid) = v_before then v_low := v_mid; else v_high := v_mid; end if;
  end loop;
  return v_high * 1000000;
end $$;

-- Returns the period of a calendar that contains a time: it includes starts and excludes ends. In microseconds of the
-- store's clock, after 1970. core/calendar.ts does the same and explains the rules. Null when the store does not
-- understand the calendar (any more: its list of zones may have changed).
-- p_quota: unit, zone and anchorUs of a rule.
-- p_at: the time.
create or replace function engine.calendar_period(p_quota jsonb, p_at bigint, out starts bigint, out ends bigint)
language plpgsql stable as $$
declare
  v_unit text := p_quota ->> 'unit';
  v_zone text := p_quota ->> 'zone';
  v_anchor bigint;
  v_length bigint := case v_unit when 'minute' then 60 when 'hour' then 3600 when 'week' then 604800
    else 86400 end * 1000000::bigint;
  v_wall bigint;
  v_origin bigint;
  v_months integer;
  v_from timestamp;
  k bigint;
begin
  v_anchor := p_quota ->> 'anchorUs';
  if v_unit in ('minute', 'hour') then
    if v_anchor is null then
      select d.starts, d.ends into v_origin, ends from engine.calendar_period(p_quota || '{"unit": "day"}', p_at) d;
    else
      v_origin := v_anchor;
    end if;
    starts := v_origin + floor((p_at - v_origin)::numeric / v_length) * v_length;
    ends := least(starts + v_length, ends);
    return;
  end if;
  v_wall := p_at + engine.zone_offset_s(v_zone, p_at / 1000000) * 1000000::bigint;
  v_origin := case
    when v_anchor is not null then
      v_anchor + engine.zone_offset_s(v_zone, floor(v_anchor / 1000000.0)::bigint) * 1000000::bigint
                   when v_unit = 'week' then 345600000000 else 0 end;
  if v_unit = 'month' then
    v_from := timestamp 'epoch' + v_origin * interval '1 microsecond';
    v_months := (select extract(year from w) * 12 + extract(month from w)
      from (select timestamp 'epoch' + v_wall * interval '1 microsecond') w (w))
                - extract(year from v_from) * 12 - extract(month from v_from);
    if extract(epoch from v_from + make_interval(months => v_months)) * 1000000 > v_wall then
      v_months := v_months - 1; end if;
  else
    k := floor((v_wall - v_origin)::numeric / v_length);
  end if;
  for i in 0 .. 100 loop
    starts := ends;
    ends := engine.instant_of_local_time(v_zone, case when v_unit = 'month'
      then (extract(epoch from v_from + make_interval(months => v_months + i)) * 1000000)::bigint
      else v_origin + (k + i) * v_length end);
    exit when ends > p_at;
  end loop;
exception when data_exception then
  starts := null;
  ends := null;
end $$;

-- Returns the calendar that claims use for the quotas of a definition (limit_def.periods): a row of eight for each
-- rule, the starts of the two periods before the one that contains p_wall, of that one, and of the five after it.
-- Claims use the row from its second start up to its seventh. A rule whose calendar the store does not understand has
-- only the seventh, a second from now: then it is tried again. Null: no rule is a quota.
-- p_wall: the store's clock, in microseconds.
create or replace function engine.calendar_periods(p_def sluice.limit_def, p_wall bigint) returns bigint[]
language plpgsql stable as $$
declare
  v_periods bigint[];
  v_calendar jsonb;
begin
  if p_def.margin is null then return null; end if;
  v_periods := array_fill(null::bigint, array[cardinality(p_def.kind), 8]);
  for i in 1 .. cardinality(p_def.kind) loop
    continue when p_def.kind[i] <> 'quota';
    v_calendar := p_def.spec -> 'rules' -> (i - 1) -> 'quota';
    v_periods[i][3] := (engine.calendar_period(v_calendar, p_wall)).starts;
    if v_periods[i][3] is null then v_periods[i][7] := p_wall + 1000000; continue; end if;
    for k in reverse 2 .. 1 loop
      v_periods[i][k] := (engine.calendar_period(v_calendar, v_periods[i][k + 1] - 1)).starts; end loop;
    for k in 4 .. 8 loop
      v_periods[i][k] := (engine.calendar_period(v_calendar, v_periods[i][k - 1])).ends; end loop;
  end loop;
  return v_periods;
end $$;

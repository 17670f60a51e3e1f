-- Returns the periods of quotas (a row for each rule: ledger.quota) as of p_to. Drops what counted in the period before
-- once that no longer matters. Computes calendars only when a period has ended. Null when the store does not understand
-- a calendar. limits/quota.ts does the same.
-- p_quota: the periods as they were written; null: nothing was counted yet.
-- p_to: the store's clock, in microseconds; not before the time at which p_quota was written.
create or replace function engine.advance_quota_periods(p_quota bigint[], p_def sluice.limit_def, p_to bigint)
returns bigint[]
language plpgsql stable as $$
declare
  v_calendar jsonb;
  v_end bigint;  -- end of the period after the one in p_quota
  v_starts bigint;
  v_ends bigint;
  v_row bigint[];
begin
  p_quota := coalesce(p_quota, array_fill(0, array[cardinality(p_def.kind), 6]));
  for i in 1 .. cardinality(p_def.kind) loop
    continue when p_def.kind[i] <> 'quota';
    if p_to < p_quota[i][3] then
      if p_to >= p_quota[i][2] + p_def.margin[i] then p_quota[i][4] := 0; end if;
      continue;
    end if;
    v_calendar := p_def.spec -> 'rules' -> (i - 1) -> 'quota';
    v_end := null;
    if p_quota[i][3] > 0 then v_end := (engine.calendar_period(v_calendar, p_quota[i][3])).ends; end if;
    if p_to < v_end then
      v_row := array[p_quota[i][2], p_quota[i][3], v_end, p_quota[i][5], p_quota[i][6], 0];
    else
      select p.starts, p.ends into v_starts, v_ends from engine.calendar_period(v_calendar, p_to) p;
      if v_ends is null then return null; end if;
      v_row := array[(engine.calendar_period(v_calendar, v_starts - 1)).starts, v_starts, v_ends,
                     case when v_starts = v_end then p_quota[i][6] else 0 end, 0, 0];
    end if;
    if p_to >= v_row[2] + p_def.margin[i] then v_row[4] := 0; end if;
    for k in 1 .. 6 loop
      p_quota[i][k] := v_row[k];
    end loop;
  end loop;
  return p_quota;
end $$;

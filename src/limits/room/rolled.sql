-- The periods of quotas (a row per rule: ledger.quota) as seen at p_to, which is not before the time they were written
-- at. p_quota null: nothing was counted yet. What counted in
-- the period before is forgotten once it does not matter. The calendar is asked only when a period has ended; null when
-- the store does not understand it. limits/quota.ts is the same.
create or replace function engine.rolled(p_quota bigint[], p_def sluice.limit_def, p_to bigint) returns bigint[]
language plpgsql stable as $$
declare
  v_calendar jsonb;
  v_end bigint;  -- of the period after the one that is known
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
    if p_quota[i][3] > 0 then v_end := (engine.period(v_calendar, p_quota[i][3])).ends; end if;
    if p_to < v_end then
      v_row := array[p_quota[i][2], p_quota[i][3], v_end, p_quota[i][5], p_quota[i][6], 0];
    else
      select p.starts, p.ends into v_starts, v_ends from engine.period(v_calendar, p_to) p;
      if v_ends is null then return null; end if;
      v_row := array[(engine.period(v_calendar, v_starts - 1)).starts, v_starts, v_ends,
                     case when v_starts = v_end then p_quota[i][6] else 0 end, 0, 0];
    end if;
    if p_to >= v_row[2] + p_def.margin[i] then v_row[4] := 0; end if;
    for k in 1 .. 6 loop
      p_quota[i][k] := v_row[k];
    end loop;
  end loop;
  return p_quota;
end $$;

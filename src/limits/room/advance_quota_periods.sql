-- Returns the periods of a bucket's quotas (a row for each rule: ledger.quota) as of p_wall. Drops what counted in the
-- period before once that no longer matters. limits/quota.ts does the same. A rule whose calendar the store does not
-- understand has nulls. The whole is null when a claim cannot compute it, so that engine.renew_bucket_states has to:
-- the calendar that is kept (limit_def.periods) does not reach p_wall; or the ledger has to be read, because the newest
-- row has no periods, or because the store's clock was set back and a period begins again in which units were granted.
-- p_row, p_def: the newest ledger row, and the definition.
-- p_wall: the store's clock, in microseconds, by which quotas go.
create or replace function engine.advance_quota_periods(p_row sluice.ledger, p_def sluice.limit_def, p_wall bigint)
returns bigint[] language plpgsql stable as $$
declare
  v_quota bigint[] := coalesce(p_row.quota, array_fill(0::bigint, array[cardinality(p_def.kind), 6]));
  -- Up to this time, and a margin, periods may begin again: the latest that the store's clock showed before a step.
  v_shown bigint := (select max(s.at - s.before_us) from sluice.step s where s.clock_offset_us > s.before_us);
  v_ends bigint;  -- of the period in the row
  v_before bigint; v_starts bigint; v_margin bigint; k integer;
begin
  if v_shown is not null and p_row.at - engine.clock_offset_at(p_row.at) > p_wall then return null; end if;
  for i in 1 .. cardinality(p_def.kind) loop
    continue when p_def.kind[i] <> 'quota';
    v_margin := p_def.margin[i]; v_ends := v_quota[i][3]; k := 2;
    if p_wall < p_def.periods[i][k] and p_wall >= v_ends or (p_wall < p_def.periods[i][7]) is not true then
      return null; end if;
    if p_def.periods[i][k] is null then
      for c in 1 .. 6 loop v_quota[i][c] := null; end loop; continue; end if;
    -- The row has no periods, or a refund since the clock was set back wrote it, at a time before the step.
    if p_row.at is not null and (p_row.quota[i][3] is null or v_shown is not null and p_wall < v_quota[i][2]) then
      return null; end if;
    if p_wall >= v_ends then
      while p_wall >= p_def.periods[i][k + 1] loop k := k + 1; end loop;
      v_before := p_def.periods[i][k - 1]; v_starts := p_def.periods[i][k];
      if p_row.at is not null and (v_starts <= v_shown + v_margin
        or p_wall < v_starts + v_margin and v_before <= v_shown + v_margin) then return null; end if;
      v_quota[i][1] := v_before; v_quota[i][2] := v_starts; v_quota[i][3] := p_def.periods[i][k + 1];
      v_quota[i][4] := case
        when v_ends > v_before then v_quota[i][5] when v_ends = v_before then v_quota[i][6] else 0 end;
      v_quota[i][5] := case when v_ends > v_before then v_quota[i][6] else 0 end;
      v_quota[i][6] := 0;
    end if;
    if p_wall >= v_quota[i][2] + v_margin then v_quota[i][4] := 0; end if;
  end loop;
  return v_quota;
end $$;

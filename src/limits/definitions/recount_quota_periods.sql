-- Returns the periods of a bucket's quotas (ledger.quota) when the store's clock shows p_wall, counted from the ledger:
-- under a changed definition as if it had always been in force, from what was granted and not given back. A grant
-- counts in the periods of the time that the store's clock showed then. What counts in the period before is not looked
-- up, because that may be months of rows: while it matters, that period is full. Nulls stand in the row of a rule whose
-- calendar the store does not understand.
-- p_wall: the store's clock, in microseconds.
-- p_old, p_kept: periods under another definition, and the place there of each quota that needs no count; null: none.
create or replace function engine.recount_quota_periods(p_bucket bigint, p_wall bigint, p_def sluice.limit_def,
  p_old bigint[] default null, p_kept integer[] default null)
returns bigint[]
language plpgsql stable as $$
declare
  v_quota bigint[] := array_fill(0::bigint, array[cardinality(p_def.kind), 6]);
  v_periods bigint[] := engine.calendar_periods(p_def, p_wall);
  v_clock_offset bigint := (select e.clock_offset_us from sluice.epoch e limit 1);
  v_least bigint := (select least(min(s.before_us), min(s.clock_offset_us)) from sluice.step s);  -- null: no steps
  v_margin bigint;
  v_starts bigint;
  v_ends bigint;
  v_next bigint;  -- end of the next period; needed only if grants may lie beyond it
  v_current bigint;
  v_after bigint;
begin
  for i in 1 .. cardinality(p_def.kind) loop
    continue when p_def.kind[i] <> 'quota';
    for k in 1 .. 6 loop v_quota[i][k] := p_old[p_kept[i]][k]; end loop;
    continue when v_quota[i][6] is not null or v_periods[i][3] is null;
    v_margin := p_def.margin[i]; v_starts := v_periods[i][3]; v_ends := v_periods[i][4];
    v_next := case when v_least is not null then v_periods[i][5] end;
    v_quota[i][1] := v_periods[i][2]; v_quota[i][2] := v_starts; v_quota[i][3] := v_ends;
    v_quota[i][4] := case when p_wall < v_starts + v_margin then p_def.capacity[i] else 0 end;
    select coalesce(sum(g.units) filter (where g.wall < v_ends + v_margin), 0),
           coalesce(sum(g.units) filter (where g.wall >= v_ends - v_margin
             and (g.wall < v_next + v_margin) is not false), 0)
    into v_current, v_after
    from (select k.units, k.at - case when v_least is null then v_clock_offset
            else engine.clock_offset_at(k.at) end as wall
          from engine.kept_grants(p_bucket, v_starts - v_margin - 1 + least(v_least, v_clock_offset)) k
          where not k.again) g
    where g.wall >= v_starts - v_margin;
    v_quota[i][5] := v_current; v_quota[i][6] := v_after;
  end loop;
  return v_quota;
end $$;

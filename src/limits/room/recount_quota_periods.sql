-- Returns the periods of a bucket's quotas (ledger.quota) when the store's clock shows p_wall, counted from the ledger:
-- under a changed definition as if it had always been in force, from what was granted and not given back. A grant
-- counts in the periods of the time that the store's clock showed then. What counts in the period before is not looked
-- up, because that may be months of rows: while it matters, that period is full.
-- p_wall: the store's clock, in microseconds.
-- p_old, p_kept: periods under another definition, and the place there of each quota that needs no count; null: none.
create or replace function engine.recount_quota_periods(p_bucket bigint, p_wall bigint, p_def sluice.limit_def,
  p_old bigint[] default null, p_kept integer[] default null)
returns bigint[]
language plpgsql stable as $$
declare
  v_quota bigint[] := engine.advance_quota_periods(null, p_def, p_wall);
  v_ahead bigint := (select e.ahead_us from sluice.epoch e limit 1);
  v_least bigint := (select least(min(s.before_us), min(s.ahead_us)) from sluice.step s);  -- null: no step is known
  v_ends bigint;  -- end of the next period; needed only if grants may lie beyond it
  v_current bigint;
  v_next bigint;
begin
  if v_quota is null then return null; end if;
  for i in 1 .. cardinality(p_def.kind) loop
    continue when p_def.kind[i] <> 'quota';
    if p_old[p_kept[i]][6] is not null then
      for k in 1 .. 6 loop v_quota[i][k] := p_old[p_kept[i]][k]; end loop;
      continue;
    end if;
    if p_wall < v_quota[i][2] + p_def.margin[i] then v_quota[i][4] := p_def.room[i]; end if;
    if v_least is not null then
      v_ends := (engine.calendar_period(p_def.spec -> 'rules' -> (i - 1) -> 'quota', v_quota[i][3])).ends; end if;
    select coalesce(sum(g.units) filter (where g.wall < v_quota[i][3] + p_def.margin[i]), 0),
           coalesce(sum(g.units) filter (where g.wall >= v_quota[i][3] - p_def.margin[i]
             and (g.wall < v_ends + p_def.margin[i]) is not false), 0)
    into v_current, v_next
    from (select k.units, k.at - case when v_least is null then v_ahead else engine.clock_lead_at(k.at) end as wall
          from engine.kept_grants(p_bucket, v_quota[i][2] - p_def.margin[i] - 1 + least(v_least, v_ahead)) k
          where not k.again) g
    where g.wall >= v_quota[i][2] - p_def.margin[i];
    v_quota[i][5] := v_current;
    v_quota[i][6] := v_next;
  end loop;
  return v_quota;
end $$;

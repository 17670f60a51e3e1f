-- The periods of a bucket's quotas (ledger.quota) under a changed definition, at p_at: as if it had been in force all along,
-- from what was granted and kept. How much counts in the period before is not looked up, for that may be months: while it
-- matters, that one is full.
create or replace function sluice.respent_v1(p_bucket bigint, p_at bigint, p_def sluice.limit_def) returns bigint[] language plpgsql stable as $$
declare
  v_ahead bigint := (select e.ahead_us from sluice.epoch e limit 1);  -- calendars go by the store's clock
  v_quota bigint[] := sluice.rolled_v1(null, p_def.margin, p_def.spec, p_at - v_ahead);
  v_current bigint;
  v_next bigint;
begin
  for i in 1 .. cardinality(p_def.margin) loop
    continue when p_def.margin[i] = 0;
    if p_at - v_ahead < v_quota[i][2] + p_def.margin[i] then v_quota[i][4] := p_def.room[i]; end if;
    select coalesce(sum(g.units), 0), coalesce(sum(g.units) filter (where g.at - v_ahead >= v_quota[i][3] - p_def.margin[i]), 0)
    into v_current, v_next
    from sluice.kept_v1(p_bucket, v_quota[i][2] - p_def.margin[i] - 1 + v_ahead) g;
    v_quota[i][5] := v_current;
    v_quota[i][6] := v_next;
  end loop;
  return v_quota;
end $$;

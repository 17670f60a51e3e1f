-- Records what attempts really used. The ratios are added under the row's lock, so that no worker loses what another
-- writes; rows are written in one order, so that no two workers deadlock. A limit of a task has some 1,000 values at
-- most; further values are not recorded.
-- p_seen: JSON with the task, lim and value of each route, and its new ratios, the newest first.
create or replace function engine.learn_costs(p_seen jsonb) returns void
language plpgsql set enable_seqscan = off as $$
declare
  v_now timestamptz := sluice.now();
begin
  insert into sluice.learned as l (task, lim, value, ratios, seen_at)
  select s.task, s.lim, s.value, s.ratios, v_now
  from jsonb_to_recordset(p_seen) s (task text, lim text, value text, ratios smallint[])
  where exists (select 1 from sluice.learned k where k.task = s.task and k.lim = s.lim and k.value = s.value)
    or (select count(*) from (
          select 1 from sluice.learned k where k.task = s.task and k.lim = s.lim limit 1000) k) < 1000
  order by s.task, s.lim, s.value
  on conflict (task, lim, value) do update set ratios = (excluded.ratios || l.ratios)[1:128], seen_at = v_now;
end $$;

-- Notes what attempts have really used. p_seen: JSON, of each route its task, lim and value, and the ratios seen, the newest
-- first. Added to under the row's lock, so that of two workers neither loses what the other writes; rows in order, so that
-- they never wait for each other. A limit of a task has 1,000 values or so; more are not noted.
create or replace function engine.learn(p_seen jsonb) returns void language plpgsql set enable_seqscan = off as $$
declare
  v_now timestamptz := sluice.now();
begin
  insert into sluice.learned as l (task, lim, value, ratios, seen_at)
  select s.task, s.lim, s.value, s.ratios, v_now
  from jsonb_to_recordset(p_seen) s (task text, lim text, value text, ratios smallint[])
  where exists (select 1 from sluice.learned k where k.task = s.task and k.lim = s.lim and k.value = s.value)
    or (select count(*) from (select 1 from sluice.learned k where k.task = s.task and k.lim = s.lim limit 1000) k) < 1000
  order by s.task, s.lim, s.value
  on conflict (task, lim, value) do update set ratios = (excluded.ratios || l.ratios)[1:128], seen_at = v_now;
end $$;

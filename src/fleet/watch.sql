-- Looks at all workers' beats and gives up those that have stood still for 10 s of being looked at. What counts is time
-- between looks, at most 3 s each: a store that was away, or a clock that jumped, makes nobody suspect; and the
-- observation is kept, so that processes too short-lived to watch for 10 s add up to one that does. One worker a call:
-- a rescue takes locks in order, and two in one transaction would take them out of it.
create or replace function engine.watch() returns bigint[] language plpgsql as $$
declare
  v_now bigint := sluice.now_us();
  v_lost bigint[];
begin
  if not pg_try_advisory_xact_lock(1397511523, -3) then return '{}'; end if;
  insert into sluice.doubt as d (worker, beat, at, unchanged_us)
  select w.id, w.beat, v_now, 0 from sluice.worker w
  on conflict (worker) do update set
    unchanged_us = case when d.beat = excluded.beat then d.unchanged_us + least(greatest(v_now - d.at, 0), 3000000) else 0 end,
    beat = excluded.beat, at = v_now;
  v_lost := array(select d.worker from sluice.doubt d where d.unchanged_us >= 10000000 limit 1);
  perform engine.rescue(d.worker, d.beat, 'lost') from sluice.doubt d where d.worker = any (v_lost);
  return v_lost;
end $$;

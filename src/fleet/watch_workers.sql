-- Looks at the beats of all workers, rescues a worker whose beat has stood still for 10 s of observed time, and
-- returns its id. Time between looks counts up to 3 s each: so no worker is suspected when the store was away or a
-- clock jumped. The observations are stored, so that processes too short-lived to watch for 10 s add up. It rescues one
-- worker a call, because a rescue takes locks in order, and two in one transaction would break that order. It chooses
-- at random, because another client may have locked a job of one of them: then nobody is rescued, after half a second,
-- but what was observed is kept, so that other workers are found lost meanwhile.
create or replace function engine.watch_workers() returns bigint[] language plpgsql as $$
declare
  v_now bigint := sluice.now_us();
  v_lost bigint[];
begin
  if not pg_try_advisory_xact_lock(1397511523, -3) then return '{}'; end if;
  insert into sluice.doubt as d (worker, beat, at, unchanged_us)
  select w.id, w.beat, v_now, 0 from sluice.worker w
  on conflict (worker) do update set
    unchanged_us = case when d.beat = excluded.beat then d.unchanged_us + least(greatest(v_now - d.at, 0), 3000000)
                        else 0 end,
    beat = excluded.beat, at = v_now;
  v_lost := array(select d.worker from sluice.doubt d where d.unchanged_us >= 10000000 order by random() limit 1);
  begin
    perform engine.rescue_worker(d.worker, d.beat, 'lost') from sluice.doubt d where d.worker = any (v_lost);
  exception when lock_not_available then
    v_lost := null;
  end;
  return v_lost;
end $$;

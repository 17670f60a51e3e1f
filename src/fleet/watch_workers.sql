-- Looks at the beats of all workers, and rescues a worker whose beat has stood still for 10 s of observed time. Time
-- between looks counts up to 3 s each: so no worker is suspected when the store was away or a clock jumped. The
-- observations are stored, so that processes too short-lived to watch for 10 s add up. It rescues one worker a call,
-- because a rescue takes locks in order, and two in one transaction would break that order. It chooses at random,
-- because another client may have locked a job of one of them: then nobody is rescued, after half a second, but what
-- was observed is kept, so that other workers are found lost meanwhile.
-- lost: the worker that it chose; null: nobody is lost, or another process looks at the workers now.
-- still_us: for how long its beat has stood still.
-- rescued: false: a lock was not free in time.
create or replace function engine.watch_workers(out lost bigint, out still_us bigint, out rescued boolean)
language plpgsql as $$
declare
  v_now bigint := sluice.now_us();
begin
  rescued := false;
  if not pg_try_advisory_xact_lock(1397511523, -3) then return; end if;  -- lock: watch
  insert into sluice.doubt as d (worker, beat, at, unchanged_us)
  select w.id, w.beat, v_now, 0 from sluice.worker w
  on conflict (worker) do update set
    unchanged_us = case when d.beat = excluded.beat then d.unchanged_us + least(greatest(v_now - d.at, 0), 3000000)
                        else 0 end,
    beat = excluded.beat, at = v_now;
  select d.worker, d.unchanged_us into lost, still_us from sluice.doubt d
  where d.unchanged_us >= 10000000 order by random() limit 1;
  begin
    perform engine.rescue_worker(d.worker, d.beat, 'lost') from sluice.doubt d where d.worker = lost;
    rescued := lost is not null;
  exception when lock_not_available then
    rescued := false;
  end;
end $$;

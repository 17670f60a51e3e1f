-- Returns a lane whose next job would pass no other job if this worker began it at once: no job of the lane waits, no
-- lane of its class is ready, no arrival of the class is unread, and nothing waits for the lane's buckets. Returns null
-- for any other lane, and where a claim would check more than limits: costs, closed gates, or a server that has started
-- since a worker last looked. The sender has looked for labels and pools (store/row.ts). It waits for no lock, so the
-- job may pass one that arrives meanwhile.
-- p_worker: the worker that would begin the job.
-- p_class, p_lane: the class and the lane of that job.
create or replace function engine.find_idle_lane(p_worker bigint, p_class bigint, p_lane bigint, out lane sluice.lane,
  out redis_epoch text)
language plpgsql as $$
declare
  v_is record;
begin
  -- As in engine.assert_worker. No lock: a rescue of this worker is under way, or waits for this transaction.
  if not pg_try_advisory_xact_lock_shared(1397511525, (p_worker & 2147483647)::integer) then  -- lock: worker
    return; end if;
  select l.lane, s.snap, right(s.snap::text, 1) <> ':' as unsure,
         exists (select 1 from sluice.gate) as gates, exists (select 1 from sluice.shared) as in_redis
  into v_is
  from sluice.epoch e
  join sluice.worker w on w.id = p_worker
  join sluice.class c on c.id = p_class and c.retired is null
  cross join lateral (
    select t.snap, t.target from sluice.class_state t where t.class = c.id order by t.n desc limit 1) s
  cross join lateral (
    select r as lane, r.list, r.costed, r.buckets from sluice.lane r where r.id = p_lane order by r.v desc limit 1) l
  where e.server_at = pg_postmaster_start_time() and l.list is null and not l.costed and s.target is null
    and pg_snapshot_xmax(s.snap) <= pg_snapshot_xmax(pg_current_snapshot())
    and not exists (select 1 from sluice.arrival a where a.class = c.id and a.xid >= pg_snapshot_xmax(s.snap))
    and (select t.due from sluice.list t where t.class = c.id and t.id = 0 order by t.v desc limit 1) is null
    and not exists (select 1 from sluice.list t where t.id = any (l.buckets) and t.id <> 0 and t.due is not null);
  -- A transaction was in progress when the class was last read: engine.find_classes.
  if v_is.unsure and exists (
    select 1 from pg_snapshot_xip(v_is.snap) m join sluice.arrival a on a.class = p_class and a.xid = m)
    or v_is.gates and engine.find_gated_classes(array[p_class], sluice.now()) <> '{}'
  then return; end if;
  if v_is.in_redis then  -- as `engine.lock_redis_epoch`, without waiting
    if not pg_try_advisory_xact_lock_shared(1397511523, -15) then return; end if;  -- lock: Redis epoch
    redis_epoch := (select s.epoch from sluice.shared s);
  end if;
  lane := v_is.lane;
end $$;

-- Notifies idle workers of work for which none of them was notified: a gate that opens, a transaction that decided
-- about its NOTIFY long before it committed, a job that was scheduled after they went to sleep, a job sent to a lane
-- that was blocked until then, a sleeper that is gone. For new jobs it notifies two workers, which notify others. It
-- leaves work that is due within four seconds to a worker that will wake in time for it, and gives such a worker half a
-- second more. One worker looks for the whole fleet, every 2 s. It does not look for work that has been due for longer
-- than 30 s, because dead rows may stand at those times; each worker finds such work when its sleep ends. Behind a gate
-- that has just opened, it looks for all work. It deletes the gates of rules that no worker has any more.
create or replace function engine.wake_for_missed_work() returns void language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_now bigint := engine.limiter_now_us();
  v_late bigint := v_now - 500000;
  v_since bigint := v_now - 30000000;
  v_till bigint := v_now + 4000000;
  v_classes bigint[];
  v_shut bigint[];
  v_opened bigint[] := '{}';
  v_active bigint[];
  v_tasks text[];
  v_job bigint;
  v_new bigint[];  -- classes that have only new jobs
begin
  perform engine.retire_classes();
  if not exists (select 1 from sluice.idle) then return; end if;
  v_classes := array(select c.id from sluice.class c);
  if exists (select 1 from sluice.gate) then
    -- Each version of a rule has a gate of its own, and claims look at all gates. These have had no worker for a day.
    delete from sluice.gate where alive_until < engine.store_time(v_now) - interval '1 day';
    v_shut := engine.find_gated_classes(v_classes, engine.store_time(v_now));
    v_opened := array(
      select unnest(engine.find_gated_classes(v_classes,
        engine.store_time(v_now - 5000000))) except select unnest(v_shut));
    v_classes := array(select unnest(v_classes) except select unnest(v_shut));
  end if;
  v_tasks := array(select distinct c.task from sluice.class c);
  v_active := array(
    select a from engine.find_classes(null, v_tasks, null, v_late, v_since) f, unnest(f.active) a
    where a <> all (coalesce(v_shut, '{}')));
  if v_opened <> '{}' then
    v_active := v_active || array(
      select a from engine.find_classes(null, v_tasks, null, v_late, -1) f, unnest(f.active) a
      where a = any (v_opened) and a <> all (v_active));
  end if;
  v_job := (select (extract(epoch from min(j.due_at)) * 1000000)::bigint + e.clock_offset_us
            from (select clock_offset_us from sluice.epoch) e cross join sluice.job j
            where j.due_at > to_timestamp((v_since - e.clock_offset_us) / 1e6)
              and j.due_at <= to_timestamp((v_till - e.clock_offset_us) / 1e6)
            group by e.clock_offset_us);
  -- Any worker promotes a job that is due, and makes the classes of new jobs: only then is it known which
  -- workers serve them.
  if 0 = any (v_active) or v_job is not null and not exists (
      select 1 from sluice.idle i where i.wake_at between v_late and v_job + 500000) then
    perform pg_notify('sluice.wake', '*');
    return;
  end if;
  v_active := v_active || array(
    select c.id from sluice.class c cross join lateral (
      select due from sluice.list where class = c.id and due > v_late and due <= v_till order by due limit 1) w
    where c.id = any (v_classes) and c.id <> all (v_active) and not exists (
      select 1 from sluice.idle i join sluice.worker m on m.id = i.worker
      where i.wake_at between v_late and w.due + 500000
        and (m.queues is null or c.queue = any (m.queues)) and c.task = any (coalesce(i.tasks, m.tasks))));
  if v_active = '{}' then return; end if;
  -- A worker that left out classes because of its own label sleeps until that label has room, which another worker may
  -- use. Its limits that have room now no longer bar these classes.
  update sluice.idle i set barred = (
    select nullif(b.classes, '{}') from sluice.worker w
    cross join lateral engine.find_classes_without_room(w.labels, i.barred, v_late) b where w.id = i.worker)
  where i.worker = any (array(select worker from sluice.idle where barred && v_active for update skip locked));
  v_new := array(
    select c from unnest(v_active) c where c <> all (v_opened) and not exists (
      select 1 from sluice.list l where l.class = c and l.due > v_since and l.due <= v_till));
  perform engine.wake_workers_for_room(v_new, 2),
    engine.wake_workers_for_room(array(select c from unnest(v_active) c where c <> all (v_new)), null);
end $$;

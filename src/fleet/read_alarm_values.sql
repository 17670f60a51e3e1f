-- Returns what the store's alarms watch (fleet/alarms.ts), a row for each alarm and subject. It reads at most 2,000
-- lanes, so beyond that the oldest wait is a lower bound. One worker of the fleet calls it, every 15 s.
-- alarm: queue-length: jobs that wait in the queue `subject`; oldest-wait: how long the oldest of them has waited, in
-- ms; no-worker: how long the oldest job has waited that no live worker can run, in ms, by task and queue; snapshot:
-- the age of the oldest transaction that keeps dead rows, in ms.
create or replace function engine.read_alarm_values()
returns table (alarm text, subject text, value float8, detail text)
language sql stable set jit = off set enable_sort = off as $$
  with unread as materialized (
    select a.class, a.lane, a.pos, a.n from (select 0::bigint as id union all select id from sluice.class) c
    join sluice.arrival a on a.class = c.id and a.xid >= coalesce((
      select pg_snapshot_xmax(b.snap) from sluice.class_state b
      where b.class = c.id order by b.n desc limit 1), '0'::xid8)
    limit 100000
  ), place as (
    (select l.id as lane, l.bound as pos from sluice.lane l where l.list is not null limit 1000)
    union all (select u.lane, u.pos from unread u limit 1000)
  ), head as materialized (
    select j.queue, j.task, j.takes, extract(epoch from sluice.now() - coalesce(j.since, j.created_at)) * 1000 as ms
    from place p cross join lateral (
      select queue, task, takes, since, created_at from sluice.job j
      where j.lane = p.lane and j.seq >= p.pos and j.claim is null and j.due_at is null order by j.seq limit 1) j
  ), depth as (
    select c.queue, sum(s.waiting) as n from sluice.class c cross join lateral (
      select waiting from sluice.class_state where class = c.id order by n desc limit 1) s group by 1
    union all
    select c.queue, sum(u.n) from unread u join sluice.class c on c.id = u.class group by 1
    union all
    -- What is announced under class 0 alone: its class is not made yet.
    select j.queue, sum(u.n) from unread u cross join lateral (
      select queue from sluice.job j where j.lane = u.lane and j.seq >= u.pos order by j.seq limit 1) j
    where u.class = 0 and not exists (
      select 1 from unread o where o.class <> 0 and o.lane = u.lane and o.pos = u.pos) group by 1
  )
  select 'queue-length', d.queue, sum(d.n)::float8, null::text from depth d group by 2
  union all
  select 'oldest-wait', h.queue, max(h.ms)::float8, null from head h group by 2
  union all
  select 'no-worker', h.task || ' in ' || h.queue, max(h.ms)::float8, null from head h
  where not exists (
    select 1 from sluice.worker w where h.task = any (w.tasks) and (w.queues is null or h.queue = any (w.queues))
      and engine.has_labels(w.labels, engine.find_label_limits(h.takes))) group by 2
  union all
  (select 'snapshot', '', (extract(epoch from sluice.now() - s.xact_start) * 1000)::float8,
     'process ' || s.pid || coalesce(' of ' || nullif(s.application_name, ''), '')
   from pg_stat_activity s where s.backend_xmin is not null and s.pid <> pg_backend_pid()
     and s.datname = current_database() and s.backend_type = 'client backend' and s.xact_start is not null
   order by s.xact_start limit 1)
$$;

-- Returns what the store's alarms watch (fleet/alarms.ts), a row for each alarm and subject. It reads at most 10,000
-- classes, and 20 lanes of each, so beyond that values are lower bounds. Classes that no claim has made yet are left
-- out.
-- alarm: queue-length: jobs that wait in the queue `subject`; oldest-wait: how long the oldest of them has waited, in
-- ms; no-worker: how long the oldest job has waited that no live worker can run, in ms, by task and queue; snapshot:
-- the age of the oldest transaction that keeps dead rows, in ms; credential: for how long the vendor has rejected that
-- of a key (of 20 keys at most), in ms; vendor-down: for how long the vendor of a limit has been down, in ms;
-- refused: for how long it has refused requests (of 1,000 keys at most), in ms, if that holds a key, or did so in the
-- last five minutes; retries: deliveries of events to the service `subject` that wait for another attempt.
create or replace function engine.read_alarm_values()
returns table (alarm text, subject text, value float8, detail text)
language sql stable set jit = off set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off as $$
  with class as materialized (
    select c.id, c.queue, c.task, c.labels, s.waiting, coalesce(pg_snapshot_xmax(s.snap), '0'::xid8) as xmax
    from sluice.class c left join lateral (
      select b.waiting, b.snap from sluice.class_state b where b.class = c.id order by b.n desc limit 1) s on true
    where c.retired is null limit 10000
  ), unread as materialized (
    select c.id as class, a.lane, min(a.pos) as pos, sum(a.n) as n
    from class c join sluice.arrival a on a.class = c.id and a.xid >= c.xmax group by 1, 2
  ), place as (
    (select c.id as class, l.id as lane, l.bound as pos from class c cross join lateral (
       select l.id, l.bound from sluice.lane l where l.class = c.id and l.list is not null limit 20) l
     where c.waiting > 0 limit 3000)
    union all (select u.class, u.lane, u.pos from unread u limit 1000)
  ), head as materialized (
    select c.queue, c.task, c.labels, max(extract(epoch from sluice.now() - j.since) * 1000)::float8 as ms
    from place p join class c on c.id = p.class cross join lateral (
      select coalesce(j.since, j.created_at) as since from sluice.job j
      where j.lane = p.lane and j.seq >= p.pos and j.claim is null and j.due_at is null order by j.seq limit 1) j
    group by 1, 2, 3
  ), depth as (
    select c.queue, c.waiting as n from class c where c.waiting > 0
    union all
    select c.queue, u.n from unread u join class c on c.id = u.class
  )
  select 'queue-length', d.queue, sum(d.n)::float8, null::text from depth d group by 2
  union all
  select 'oldest-wait', h.queue, max(h.ms), null from head h group by 2
  union all
  select 'no-worker', h.task || ' in ' || h.queue, max(h.ms), null from head h
  where not exists (
    select 1 from sluice.worker w where h.task = any (w.tasks) and (w.queues is null or h.queue = any (w.queues))
      and engine.has_labels(w.labels, h.labels)) group by 2
  union all
  (select 'credential', concat_ws(' for ', b.name, nullif(b.key, '')),
     (engine.limiter_now_us() - r.since) / 1000::float8, r.answer
   from sluice.refusal r join sluice.bucket b on b.id = r.bucket where r.cause = 'credential' order by r.since limit 20)
  union all
  select 'vendor-down', b.name, max(engine.limiter_now_us() - r.since) / 1000::float8,
    max(r.answer) || case when count(*) > 1 then ', ' || count(*) || ' keys' else '' end
  from sluice.refusal r join sluice.bucket b on b.id = r.bucket where r.cause = 'down' group by 2
  union all
  select 'refused', b.name, max(engine.limiter_now_us() - r.since) / 1000::float8,
    max(r.answer) || case when count(*) > 1 then ', ' || count(*) || ' keys' else '' end || ', held until '
      || to_char(to_timestamp((max(l.hold) - (select e.clock_offset_us from sluice.epoch e)) / 1000000.0)
         at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
  from (select * from sluice.refusal where cause = 'refused' order by since limit 1000) r
  join sluice.bucket b on b.id = r.bucket
  cross join lateral (
    select o.hold from sluice.ledger o where o.bucket = r.bucket order by o.bucket desc, o.at desc, o.n desc limit 1) l
  where l.hold > engine.limiter_now_us() - 300000000 group by 2
  union all
  select 'retries', r.service, sum(r.n)::float8, null from engine.count_event_retries(10000) r group by 2
  union all
  (select 'snapshot', '', (extract(epoch from sluice.now() - s.xact_start) * 1000)::float8,
     'process ' || s.pid || coalesce(' of ' || nullif(s.application_name, ''), '')
   from pg_stat_activity s where s.backend_xmin is not null and s.pid <> pg_backend_pid()
     and s.datname = current_database() and s.backend_type = 'client backend' and s.xact_start is not null
   order by s.xact_start limit 1)
$$;

-- Returns the state of the whole store in a few numbers. It counts rows one by one only up to 10,000, so that it always
-- returns quickly. Beyond that, waiting and done come from the bookkeeping of claims and the server's statistics, and
-- the others are 10,001.
-- Sorting and JIT are off: a plan that sorts would read a whole lane to find its oldest job, and compiling a plan takes
-- longer than running it.
create or replace function engine.read_store_status()
returns table (waiting bigint, scheduled bigint, dispatched bigint, running bigint, done bigint, failed bigint,
  workers bigint, slots bigint, oldest_ms float8)
language sql stable set jit = off set enable_sort = off set enable_bitmapscan = off as $$
  with now as materialized (
    select sluice.now() as now
  ), place as (
    -- Where jobs wait: lanes that have some, and arrivals that no claim has absorbed yet.
    (select l.id as lane, l.bound as pos from sluice.lane l where l.list is not null)
    union all
    (select a.lane, a.pos from (select 0::bigint as id union all select id from sluice.class) c
      join sluice.arrival a on a.class = c.id and a.xid >= coalesce((select pg_snapshot_xmax(b.snap)
        from sluice.class_state b where b.class = c.id order by b.n desc limit 1), '0'::xid8))
  ), hand as materialized (
    -- Jobs in hand, by their states (engine.state_of_job). A claim's row stays until the last of its jobs has ended.
    select case when s.at > (select engine.limiter_now_us()) then 'waiting'
             when w.stints is not null and (s.seq = any (c.begun)) is not true then 'dispatched'
             else 'running' end as state
    from sluice.claim c left join sluice.worker w on w.id = c.worker
    cross join unnest(c.lanes, c.seqs, c.instants) s (lane, seq, at)
    cross join lateral (
      select 1 from sluice.job j
      where j.lane = s.lane and j.seq = s.seq and j.due_at is null and j.claim = c.id limit 1) j limit 10001
  ), counted as materialized (
    select (select count(*) from (select 1 from sluice.job where claim is null and (due_at = 'infinity') is not false
                                  limit 10001) w)
           -- They have become due, and no claim has noted it yet.
           + (select count(*) from (select 1 from sluice.job where due_at <= n.now limit 10001) d)
           + (select count(*) from hand h where h.state = 'waiting') as waiting,
           (select count(*) from (select 1 from sluice.done where state = 'done' limit 10001) d) as done
    from now n
  )
  select case when c.waiting <= 10000 then c.waiting
           else greatest(c.waiting, (select sum(n.waiting) from engine.count_class_jobs() n)) end::bigint as waiting,
         (select count(*) from (select 1 from sluice.job where due_at > n.now and due_at < 'infinity'
                                limit 10001) s)::bigint as scheduled,
         (select count(*) from hand h where h.state = 'dispatched')::bigint as dispatched,
         (select count(*) from hand h where h.state = 'running')::bigint as running,
         case when c.done <= 10000 then c.done
           else greatest(c.done, (select sum(s.n_live_tup)
                                  from pg_inherits i join pg_stat_all_tables s on s.relid = i.inhrelid
                                  where i.inhparent = 'sluice.done'::regclass)) end::bigint as done,
         (select count(*) from (select 1 from sluice.failed limit 10001) f)::bigint as failed,
         (select count(*) from sluice.worker)::bigint as workers,
         (select coalesce(sum(slots), 0) from sluice.worker)::bigint as slots,
         (select engine.unix_ms(min(j.created_at)) from (select lane, pos from place limit 1000) p cross join lateral (
            select created_at from sluice.job where lane = p.lane and seq >= p.pos and claim is null and due_at is null
            order by seq limit 1) j) as oldest_ms
  from counted c cross join now n
$$;

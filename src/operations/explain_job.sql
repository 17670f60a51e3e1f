-- Reads what stands between a waiting job and its start, by the same functions (`engine.bucket_room`) and lists as
-- claims.
-- $1 the job's id
with job as (
  select j.*, engine.limiter_now_us() as now_us, e.clock_offset_us, e.closed_us
  -- `limit 1` shows the planner that there is one row. For more rows it would compile the query, which takes seconds.
  from sluice.job j cross join (select clock_offset_us, closed_us from sluice.epoch limit 1) e where j.id = $1
), take as (
  -- Buckets are found by name, because a bucket has no row before its first job is absorbed: then all of its room is
  -- free. A label stands for the buckets of all workers that could run the job; room in one of them is enough.
  select row_number() over (order by u.o, v.value) as i, u.way, n.name,
         sluice.hash64(coalesce(n.name || ':' || v.value, u.way)) as id,
         case when u.way = n.name || '*' then null
              else substr(coalesce(n.name || ':' || v.value, u.way), length(n.name) + 2) end as key,
         coalesce(j.costs[u.o], 1)::bigint as cost, case when j.costs is null then 0 else b.units end as before
  from job j cross join lateral unnest(j.buckets) with ordinality u (way, o)
  cross join lateral (select substring(u.way from '^[^:*@]+') as name) n
  left join lateral (select distinct w.labels ->> split_part(u.way, '@', 2) as value from sluice.worker w
                     where (w.queues is null or j.queue = any (w.queues)) and j.task = any (w.tasks)) v
    on u.way like n.name || '@%'
  -- Jobs before it in its lane take their units first.
  cross join lateral (
    select coalesce(sum(x.cost), 0)::bigint as units from (
      select o.costs[u.o] as cost from sluice.job o
      where j.costs is not null and o.lane = j.lane and o.seq < j.seq and o.claim is null and o.due_at is null
      limit 10000) x) b
  where u.way not like n.name || '@%' or v.value is not null
), lane as (
  select l.* from job j cross join lateral (select * from sluice.lane where id = j.lane order by v desc limit 1) l
), turn as (
  -- The virtual start of the lane's fair key.
  select k.vstart from lane me cross join lateral (
    select l.vstart from sluice.lane l
    where l.class = me.class and l.fair = me.fair and l.vstart is not null order by l.vstart desc limit 1) k
), ahead as (
  select count(*) as n from job j, lateral (
    select 1 from sluice.job o
    where o.lane = j.lane and o.seq < j.seq and o.claim is null and o.due_at is null limit 10000) o
), kin as (
  -- Lanes of its own key that go first. First attempts and retries of a key take turns, under fair keys that differ in
  -- the lowest bit (claim/arrivals/absorb_arrivals.sql): of those at most as many jobs go first as come before it in
  -- its lane.
  select (select count(*) from (
            select 1 from sluice.job o
            where o.lane = s.id and o.seq >= s.bound and o.claim is null and o.due_at is null limit s.most) o) as n
  from lane me cross join ahead a left join turn f on true cross join lateral (
    select l.id, l.bound, case when l.fair = me.fair then 10000 else a.n + 1 end as most from sluice.lane l
    where l.class = me.class and l.list = me.list and l.fair in (me.fair, me.fair # 1) and l.id <> me.id
      and case when l.fair = me.fair then (l.rank, l.id) < (me.rank, me.id) else a.n > 0 or l.vstart < f.vstart end
    limit 1000) s
), rival as (
  -- For each bucket the jobs of other fair keys that wait for it and have their turns before the job's: of each lane at
  -- most as many as come before it in its own. They are counted in some lanes, and estimated for all.
  select t.i, ceil(avg(o.n) * max(s.lanes))::bigint as jobs
  from take t cross join lane me cross join ahead a cross join lateral (
    select l.id, l.bound, count(*) over () as lanes
    from (select distinct class from sluice.list where id = t.id and id <> 0) c
    join sluice.lane l on l.class = c.class and l.list = t.id and l.fair | 1 <> me.fair | 1
    limit 200) s
  cross join lateral (
    select count(*) as n from (
      select 1 from sluice.job o where o.lane = s.id and o.seq >= s.bound and o.claim is null and o.due_at is null
      limit least(a.n + 1, 1000)) x) o
  group by t.i
)
select j.id, j.task, j.queue, j.attempt, engine.state_of_job(o) as state, engine.find_parked_causes(o) as parked,
       engine.unix_ms(engine.scheduled_until(o)) as due_ms,
       a.n::float8 as ahead, j.error, j.delay_reason, j.fair, j.now_us::float8 as now_us,
       j.clock_offset_us::float8 as clock_offset_us,
       case when engine.is_granted_ahead(o) then engine.unix_ms(j.dispatched_at) end as granted_ms,
       -- Where a round ends it; parked jobs have no `delay_reason`.
       case when j.due_at = 'infinity' then j.delay_reason
            when j.expires_at <= engine.store_time(j.now_us) then 'expired' end as ends_by,
       engine.unix_ms(j.expires_at) as expires_ms, coalesce(j.raw, false) as raw,
       (select json_build_object('sinceMs', engine.unix_ms(s.away_at), 'why', s.away,
          'begunMs', engine.unix_ms(s.at))
        from sluice.shared s limit 1) as redis,
       (select json_build_object('count', count(*), 'slots', coalesce(sum(w.slots), 0)) from sluice.worker w
        where (w.queues is null or j.queue = any (w.queues)) and j.task = any (w.tasks)
          and engine.has_labels(w.labels, engine.find_label_limits(j.buckets))) as workers,
       (select array_agg(split_part(u, '@', 2)) from unnest(engine.find_label_limits(j.buckets)) u) as labels,
       (select count(*) from lane me cross join turn f
        join sluice.lane o on o.class = me.class and o.list = me.list and o.vstart < f.vstart
          and o.fair | 1 <> me.fair | 1)::float8 as lanes_before,
       -- Lanes of its own fair key that go first, and about how many jobs they have.
       (select count(*) from kin)::float8 as kin_lanes, (select coalesce(sum(n), 0) from kin)::float8 as kin_jobs,
       (select json_agg(json_build_object('gate', g.gate, 'reason', g.reason, 'by', g.by,
          'hours', (select json_build_object('fromMin', o.from_min, 'toMin', o.to_min, 'days', o.days, 'zone', o.zone)
                    from sluice.gate o where o.name = g.gate and o.zone is not null),
          'sinceMs', engine.unix_ms(g.since),
          'untilMs', engine.unix_ms(g.until)))
        from engine.find_closed_gates(j.queue, j.task, engine.store_time(j.now_us)) g) as gates,
       -- `states`: what limits/earliest.ts computes with; for a label or a pool of each bucket that may be used.
       (select json_agg(x.b order by x.next desc) from (
        select distinct on (t.way) r.next, json_build_object('limit', t.name, 'key', coalesce(t.key, ''),
          'members', case when t.key is null then cardinality(d.members) end, 'defined', d.capacity is not null,
          'avail', case when b.id is null then d.capacity
            else (
              select case when j.costs is null then u.avail else u.units end
              from unnest(engine.units_left_for_jobs(array[r::engine.room], j.now_us)) u) end,
          -- As for a claim: what is reserved for lanes that have waited longer (claim/room/read_claim_room.sql).
          'kept', (
            select coalesce(sum(v.need), 0) from sluice.reservation v
            where v.bucket = t.id and v.lane <> j.lane and v.until > j.now_us and not exists (
              select 1 from sluice.reservation w
              where w.bucket = t.id and w.lane = j.lane and (w.since, w.lane) < (v.since, v.lane))),
          'cost', t.cost, 'before', t.before, 'spec', d.spec, 'version', d.version,
          'isLent', d.lend_us is not null, 'reopens', d.reopens, 'rivals', coalesce(o.jobs, 0),
          'states', json_agg(s.states) over (partition by t.way),
          'heldMs', case when h.hold > j.now_us then ((h.hold - j.clock_offset_us) / 1000)::float8 end,
          'lost', h.hold > j.now_us and h.hold <= d.reopens, 'heldForMs', c.for_ms, 'cause', c.cause,
          'tried', c.tried, 'refusal', (
            select json_build_object('cause', f.cause, 'answer', f.answer, 'n', f.n,
              'sinceMs', ((f.since - j.clock_offset_us) / 1000)::float8)
            from sluice.refusal f where f.bucket = t.id),
          'others', (
            select sum(l.units) from sluice.ledger l
            where l.bucket = t.id and l.cause = 'others' and l.at > j.now_us - d.span),
          'shared', d.shared,
          'paused', (select json_build_object('reason', p.reason, 'by', p.by,
                       'sinceMs', engine.unix_ms(p.created_at))
                     from sluice.limit_pause p
                     where p.name = t.name and p.key in ('', t.key) order by p.key limit 1),
          'places', (select x.capacity from unnest(r.kind, r.debt, d.capacities) x (kind, debt, capacity)
                     where x.kind = 'concurrency' and x.debt >= x.capacity limit 1),
          'nextMs', ((case when b.id is null then greatest(j.now_us, h.hold)
                           when r.trial_us > 0 then j.now_us else r.next end - j.clock_offset_us)
                     / 1000)::float8) as b
        from take t join unnest(engine.bucket_room(array(select t.id from take t order by t.i), j.now_us, false,
          -- The members of a pool may share what comes before it.
          array(select case when t.key is null then t.cost else t.cost + t.before end from take t order by t.i))) r
          on r.ord = t.i
        left join sluice.bucket b on b.id = t.id
        left join lateral (
          select engine.limit_reopens_at(j.closed_us, l.kind, l.span) as reopens, l.capacity as capacities, l.members,
                 strpos(l.name, '/') = 0 and 'concurrency' <> any (l.kind) and l.spec -> 'open' is null as shared,
                 (select min(x.capacity) from unnest(l.capacity, l.kind) x (capacity, kind)
                  where x.kind <> 'concurrency' or 'concurrency' = all (l.kind) or j.costs is null) as capacity,
                 l.spec, l.version, l.lend_us, (select max(s) from unnest(l.span) s) as span
          from sluice.limit_def l
          where l.name = t.name and l.key = coalesce(b.def_key, '') order by l.version desc limit 1) d on true
        cross join lateral (
          select greatest(r.hold, case when b.id is null then d.reopens end) as hold) h
        cross join lateral (
          select json_agg(json_build_object('version', m.version, 'atUs', m.now_at, 'debt', m.debt,
            'parts', to_json(m.parts), 'quota', to_json(m.quota),
            'holdUs', case when m.trial_us > 0 then 0 else m.hold end)) as states
          from unnest(engine.bucket_room(case when t.key is null and d.members is not null
            then array(select sluice.hash64(t.name || ':' || x) from unnest(d.members) x) else array[t.id] end,
            j.now_us)) m) s
        left join lateral (
          select max(k.hold - k.at) / 1000.0 as for_ms,
                 max(k.cause) filter (where k.cause not in ('others', 'again', 'denied')) as cause,
                 bool_or(k.trial_us > 0 and k.units > 0) as tried
          from (select l.* from sluice.ledger l where l.bucket = t.id order by l.at desc, l.n desc limit 200) k
          where k.hold = r.hold) c on h.hold > j.now_us
        left join rival o on o.i = t.i
        order by t.way, r.next) x) as buckets
from job j join sluice.job o on o.id = j.id cross join ahead a

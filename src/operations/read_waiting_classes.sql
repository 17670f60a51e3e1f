-- Reads about how many jobs wait for each task and queue from the bookkeeping of claims, and the oldest of the first
-- jobs of each one's lanes. It reads no further jobs, however many wait. Of classes that do not exist yet it reads
-- 10,000 lanes.
-- $1: how many tasks and queues at most
select c.task, c.queue, n.waiting::float8 as n,
       (select engine.unix_ms(min(h.created_at))
        from (select l.id, l.bound from sluice.lane l where l.class = c.id and l.list is not null limit 200) l
        cross join lateral (
          select o.created_at from sluice.job o
          where o.lane = l.id and o.seq >= l.bound and o.claim is null and o.due_at is null
          order by o.seq limit 1) h) as oldest_ms
from engine.count_class_jobs() n join sluice.class c on c.id = n.class
union all
select h.task, h.queue, sum(a.n)::float8, engine.unix_ms(min(h.created_at))
from (select a.lane, min(a.pos) as pos, sum(a.n) as n from sluice.arrival a
      where a.class = 0 and a.xid >= coalesce((
        select pg_snapshot_xmax(k.snap) from sluice.class_state k
        where k.class = 0 order by k.n desc limit 1), '0'::xid8)
      group by a.lane limit 10000) a
cross join lateral (
  select j.task, j.queue, j.created_at from sluice.job j
  where j.lane = a.lane and j.seq >= a.pos and j.claim is null and j.due_at is null order by j.seq limit 1) h
group by 1, 2
order by 3 desc limit $1::integer

-- Reads about how many jobs wait for each task and queue from the bookkeeping of claims, and the oldest of the first
-- jobs of each one's lanes. It reads no further jobs, however many wait.
-- $1: how many tasks and queues at most
select c.task, c.queue,
       (coalesce(s.waiting, 0) + coalesce((
         select sum(a.n) from sluice.arrival a
         where a.class = c.id and a.xid >= coalesce(pg_snapshot_xmax(s.snap), '0'::xid8)), 0))::float8 as n,
       (select engine.unix_ms(min(h.created_at))
        from (select l.id, l.bound from sluice.lane l where l.class = c.id and l.list is not null limit 200) l
        cross join lateral (
          select o.created_at from sluice.job o
          where o.lane = l.id and o.seq >= l.bound and o.claim is null and o.due_at is null
          order by o.seq limit 1) h) as oldest_ms
from sluice.class c
left join lateral (
  select k.waiting, k.snap from sluice.class_state k where k.class = c.id order by k.n desc limit 1) s on true
where c.retired is null order by 3 desc limit $1::integer

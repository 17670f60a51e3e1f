-- Finds the job of a task that is next in one of its lanes: of the first jobs of all lanes the oldest one, else the one
-- that becomes due first.
-- $1: the task
select j.id from (
  (select h.id, h.created_at as at, 0 as late from (
     (select l.id as lane, l.bound as pos from sluice.class c join sluice.lane l on l.class = c.id
      where c.task = $1 and l.list is not null limit 1000)
     union all
     -- Arrivals that no claim has absorbed yet.
     (select a.lane, a.pos from (select 0::bigint as id union all select id from sluice.class where task = $1) c
      join sluice.arrival a on a.class = c.id limit 1000)) p
   cross join lateral (
     select o.id, o.created_at, o.task from sluice.job o
     where o.lane = p.lane and o.seq >= p.pos and o.claim is null and o.due_at is null order by o.seq limit 1) h
   where h.task = $1 order by h.created_at, h.id limit 1)
  union all
  (select s.id, s.due_at, 1 from (
     select o.id, o.task, o.due_at from sluice.job o where o.due_at is not null order by o.due_at limit 10000) s
   where s.task = $1 order by s.due_at limit 1)) j
order by j.late, j.at limit 1

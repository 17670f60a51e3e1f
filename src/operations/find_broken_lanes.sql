-- Finds lanes and lists whose bookkeeping is broken. Such a fault makes jobs wait for ever, or makes claims read lists
-- that have no lane. Returns a row for each fault, task and queue: how many lanes have the fault, and the first lane
-- with its list and its first job. It returns no row if it finds no fault.
-- It reads every lane, every waiting job and every arrival in one snapshot, without locks. Each statement of the engine
-- leaves the tables without these faults, so this also holds for a store that is in use.
--   turn: the lanes of a fair key in a list have no turn, or more than one
--   list: a lane stands in a list that is missing, that no claim reads, or that begins after the lane's turn
--   empty: a list is to be read, and no lane stands in it
--   seat: jobs wait, nothing announces them to claims, and their lane is in no list, or goes on after them
with seat as (
  -- Lanes in list 1 are parked: another check names them.
  select l.* from sluice.lane l where l.list <> 1
), unread as (
  select distinct a.lane from sluice.arrival a
  left join lateral (
    select s.snap, s.target from sluice.class_state s where s.class = a.class order by s.n desc limit 1) s on true
  -- While a portion is left, any arrival may be unread. After a snapshot from the future the next claim rebuilds all.
  where s.snap is null or s.target is not null or not pg_visible_in_snapshot(a.xid, s.snap)
     or pg_snapshot_xmax(s.snap) > pg_snapshot_xmax(pg_current_snapshot())
), waiting as (
  select j.lane, min(j.seq) as seq from sluice.job j where j.claim is null and j.due_at is null group by j.lane
), fault as (
  select 'turn' as fault, s.class, s.list, min(s.id) as lane from seat s
  group by s.class, s.list, s.fair having count(s.vstart) <> 1
  union all
  select 'list', s.class, s.list, s.id from seat s left join sluice.list i on i.class = s.class and i.id = s.list
  where i.id is null or i.due is null or i.floor > s.vstart
  union all
  select 'empty', i.class, i.id, null from sluice.list i
  where i.due is not null and not exists (select 1 from seat s where s.class = i.class and s.list = i.id)
  union all
  select 'seat', l.class, l.list, w.lane from waiting w left join sluice.lane l on l.id = w.lane
  where (l.list is null or l.list <> 1 and l.bound > w.seq)
    and not exists (select 1 from unread u where u.lane = w.lane)
), named as (
  select f.fault, f.list, f.lane, j.id as job, coalesce(j.task, c.task) as task, coalesce(j.queue, c.queue) as queue
  from fault f left join sluice.class c on c.id = f.class
  left join waiting w on w.lane = f.lane
  left join sluice.job j on j.lane = w.lane and j.seq = w.seq
)
select n.fault, n.task, n.queue, count(*)::integer as n, (array_agg(n.lane::text order by n.lane))[1] as lane,
       (array_agg(n.list::text order by n.lane))[1] as list, (array_agg(n.job order by n.lane))[1] as job
from named n group by n.fault, n.task, n.queue order by n.fault, n.task, n.queue

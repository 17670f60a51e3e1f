-- Returns the lane if its jobs wait in the list of a bucket, or are parked; else nothing. Claims read such a list only
-- when it is due, and something else wakes a worker then: its timer, or what frees units. So a sender of another job of
-- the lane notifies nobody. A list that has been due for half a second shows that the worker that was to come has not
-- come. It returns rows, so that it becomes part of a query about many lanes: a call for each lane takes 20 times as
-- long.
create or replace function engine.blocked_lane(p_lane bigint) returns setof bigint language sql stable as $$
  select v.id from (select * from sluice.lane l where l.id = p_lane order by l.v desc limit 1) v
  where v.list <> 0 and coalesce((
    select l.due from sluice.list l where l.class = v.class and l.id = v.list order by l.v desc limit 1)
      >= engine.limiter_now_us() - 500000, true)
$$;

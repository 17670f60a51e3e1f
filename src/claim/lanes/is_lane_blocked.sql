-- True when the jobs of this lane wait in the list of a bucket, or are parked. Claims read such a list only when it is
-- due, and something else wakes a worker then: its timer, or what frees units. So a sender of another job of the lane
-- notifies nobody. A list that has been due for half a second shows that the worker that was to come has not come.
create or replace function engine.is_lane_blocked(p_lane bigint) returns boolean language plpgsql as $$
declare
  v_lane sluice.lane;
begin
  select * into v_lane from sluice.lane l where l.id = p_lane order by l.v desc limit 1;
  return coalesce(v_lane.list, 0) <> 0 and coalesce((
    select l.due from sluice.list l where l.class = v_lane.class and l.id = v_lane.list order by l.v desc limit 1)
      >= engine.limiter_now_us() - 500000, true);
end $$;

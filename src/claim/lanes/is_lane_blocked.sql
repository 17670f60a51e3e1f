-- True if the lane is blocked (`engine.blocked_lane`). For queries that mostly do not look: as a part of these it would
-- be prepared each time.
create or replace function engine.is_lane_blocked(p_lane bigint) returns boolean language plpgsql as $$
begin
  return exists (select from engine.blocked_lane(p_lane));
end $$;

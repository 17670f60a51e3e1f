-- True when jobs of this lane wait until a limit has room. A claim is planned for then, so a sender of another job of
-- the lane notifies nobody: a claim before would find nothing.
create or replace function engine.is_lane_blocked(p_lane bigint) returns boolean language plpgsql stable as $$
begin
  return coalesce((select l.list from sluice.lane l where l.id = p_lane order by l.v desc limit 1), 0) <> 0;
end $$;

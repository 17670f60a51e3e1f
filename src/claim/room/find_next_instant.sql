-- Returns the first instant within `engine.grant_horizon_us` at which one of these lanes can have a grant, if none can
-- now; else null. Grants for a later instant close a bucket to others until then. So lanes that take places have such
-- grants only where others have closed a bucket, and so have all where units are reserved, takers wait or a share is
-- lent.
-- p_buckets: the buckets of the lanes, in the order of p_avail; p_avail, p_rooms, p_held: what `engine.read_claim_room`
-- returned
create or replace function engine.find_next_instant(
  p_lanes sluice.lane[], p_buckets bigint[], p_avail bigint[], p_rooms engine.room[], p_now bigint, p_held boolean)
returns bigint language plpgsql as $$
declare
  v_lane sluice.lane; v_bucket bigint; v_room engine.room; v_at bigint; v_first bigint;
  v_places boolean; v_closed boolean;
  v_plain boolean := not p_held and not exists (select 1 from sluice.limit_def d where d.lend_us is not null);
begin
  foreach v_lane in array p_lanes loop
    v_at := p_now; v_places := false; v_closed := false;
    foreach v_bucket in array v_lane.buckets loop
      v_room := p_rooms[array_position(p_buckets, v_bucket)];
      v_at := greatest(v_at, v_room.next);
      v_places := v_places or ('concurrency' = any (v_room.kind)) is not false;
      v_closed := v_closed or v_room.now_at > p_now;
    end loop;
    if v_at <= p_now then return null; end if;
    if (v_closed or v_plain and not v_places) and v_at <= p_now + engine.grant_horizon_us() then
      v_first := least(v_first, v_at); end if;
  end loop;
  return v_first;
end $$;

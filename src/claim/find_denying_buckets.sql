-- Returns for each lane the bucket that it has to wait for, as a position in p_buckets; 0: none. That is the bucket
-- that denied the lane (p_blocked). If one bucket after another denied the lane, it is the slowest of the buckets that
-- lack room, as claim/room/reserve_units.sql requires. A label without room bars the worker, not the lane: that stays
-- where other workers find it, unless another bucket lacks room for its next job, too.
create or replace function engine.find_denying_buckets(
  p_lanes sluice.lane[], p_blocked integer[], p_buckets bigint[], p_rooms engine.room[])
returns integer[] language plpgsql stable as $$
declare
  v_lane sluice.lane;
  v_barred boolean;
  v_costs integer[];
begin
  for i in 1 .. cardinality(p_lanes) loop
    continue when p_blocked[i] = 0;
    v_lane := p_lanes[i];
    v_barred := (p_rooms[p_blocked[i]]).bucket <> p_buckets[p_blocked[i]];
    continue when not v_barred and (v_lane.denied < 1 or v_lane.costed);
    v_costs := null;
    if v_lane.costed then
      v_costs := (
        select j.costs from sluice.job j
        where j.lane = v_lane.id and j.seq >= v_lane.bound and j.claim is null and j.due_at is null
        order by j.seq limit 1); end if;
    p_blocked[i] := coalesce((
      select r.ord from unnest(p_rooms) r
      where r.bucket = p_buckets[r.ord] and r.bucket = any (v_lane.buckets)
        and (r.units < greatest(1, v_costs[array_position(v_lane.buckets, r.bucket)]) or r.places < 1)
      order by case when 'concurrency' <> any (r.kind) then r.period * r.most else 0 end desc, r.bucket desc
      limit 1), case when not v_barred then p_blocked[i] end, 0);
  end loop;
  return p_blocked;
end $$;

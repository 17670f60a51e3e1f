-- Returns for each lane the bucket that it has to wait for, as a position in p_buckets; 0: none. That is the bucket
-- that denied the lane (p_blocked). If several buckets denied the lane in turn, it is the slowest of the buckets that
-- lack room, as claim/room/reserve_units.sql requires.
-- p_rooms: as `engine.read_claim_room` returns them
create or replace function engine.find_denying_buckets(
  p_lanes sluice.lane[], p_blocked integer[], p_buckets bigint[], p_rooms engine.room[])
returns integer[] language plpgsql immutable as $$
begin
  for i in 1 .. cardinality(p_lanes) loop
    continue when p_blocked[i] = 0 or p_lanes[i].denied < 1 or p_lanes[i].costed;
    p_blocked[i] := coalesce((
      select r.ord from unnest(p_rooms) r
      where p_buckets[r.ord] = any (p_lanes[i].buckets) and (r.units < 1 or r.places < 1)
      order by case when 'concurrency' <> any (r.kind) then r.period * r.most else 0 end desc, p_buckets[r.ord] desc
      limit 1), p_blocked[i]);
  end loop;
  return p_blocked;
end $$;

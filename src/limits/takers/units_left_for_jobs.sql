-- Returns what is left of the room of buckets for jobs: where takers wait and have the turn, the units that they want
-- are subtracted, and a place for each of them.
-- p_rooms: as engine.bucket_room returns them.
-- p_now: limiter's time in microseconds.
create or replace function engine.units_left_for_jobs(p_rooms engine.room[], p_now bigint) returns engine.room[]
language plpgsql stable as $$
declare
  v_wait record;
  v_room engine.room;
begin
  for v_wait in
    select u.ordinality as i, count(*) as takers, sum(t.cost)::bigint as cost
    from unnest(p_rooms) with ordinality u join sluice.taker t on t.bucket = u.bucket
    where t.alive_until > p_now and t.reserves group by 1
  loop
    v_room := p_rooms[v_wait.i];
    continue when v_room.units <= 0 and v_room.places <= 0 or engine.jobs_have_turn(v_room.bucket);
    v_room.avail := greatest(0, v_room.avail - v_wait.cost);
    v_room.units := greatest(0, v_room.units - v_wait.cost);
    v_room.places := greatest(0, v_room.places - v_wait.takers);
    p_rooms[v_wait.i] := v_room;
  end loop;
  return p_rooms;
end $$;

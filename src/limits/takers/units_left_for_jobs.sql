-- Returns what is left of the room of buckets for jobs: where takers wait and have the turn, the units that they want
-- are subtracted, and a place for each of them. Takers wait at members of a pool: a pool has what is left of these.
create or replace function engine.units_left_for_jobs(p_rooms engine.room[], p_now bigint) returns engine.room[]
language plpgsql stable as $$
declare
  v_wait record;
  v_room engine.room;
  v_pool record;  -- a pool's definition and members
  v_left engine.room;
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
  for i in 1 .. cardinality(p_rooms) loop
    v_room := p_rooms[i];
    continue when v_room.version is not null or v_room.avail <= 0;
    select l as def, array(select sluice.hash64(l.name || ':' || m) from unnest(l.members) m) as members into v_pool
    from sluice.bucket b join sluice.limit_def l on l.name = b.name and l.key = b.def_key
    where b.id = v_room.bucket order by l.version desc limit 1;
    continue when not exists (
      select 1 from sluice.taker t where t.bucket = any (v_pool.members) and t.alive_until > p_now and t.reserves);
    v_left := engine.pool_room(v_pool.def, v_room.ord, v_room.bucket, p_now, v_room.wall,
      engine.units_left_for_jobs(engine.recorded_room(v_pool.members, p_now), p_now));
    v_room.avail := v_left.avail; v_room.units := v_left.units; v_room.places := v_left.places;
    p_rooms[i] := v_room;
  end loop;
  return p_rooms;
end $$;

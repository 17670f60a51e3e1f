-- Returns what the pool of a definition allows, in the form of engine.bucket_room; a pool has no state of its own. To
-- act on the answer, the caller locks the members first. A member that was never used is all free, and one that is
-- parked has no room.
-- avail: jobs of one unit for which the members have room together.
-- units, places: those of the member that has the most.
-- next: when one of the members has room for the next job.
-- p_def: the definition.
-- p_ord, p_bucket: place in the call of engine.bucket_room, and id, of the pool's own bucket.
-- p_now, p_wall: the limiter's and the store's clock, in microseconds.
-- p_members: what the members allow, for the next job.
create or replace function engine.pool_room(
  p_def sluice.limit_def, p_ord integer, p_bucket bigint, p_now bigint, p_wall bigint, p_members engine.room[])
returns engine.room language plpgsql immutable as $$
declare
  v_free constant bigint := (select min(u) from unnest(p_def.capacity) u);  -- of a member that was never used
  v_rooms engine.room[];
  v_room engine.room;
begin
  foreach v_room in array p_members loop
    continue when v_room.version is null and v_room.next = 9007199254740991;  -- it is parked
    if v_room.version is null and not v_room.stale then
      v_room.avail := v_free; v_room.units := v_free; v_room.places := 2147483647; v_room.next := p_now;
    end if;
    v_rooms := v_rooms || v_room;
  end loop;
  v_room := null;
  select coalesce(max(r.most), 2147483647), coalesce(min(r.next), 9007199254740991),
         greatest(1, min(r.period) / nullif(count(*), 0)), coalesce(min(r.slack), 0)
  into v_room.most, v_room.next, v_room.period, v_room.slack from unnest(v_rooms) r;
  select r.units, r.places into v_room.units, v_room.places from unnest(v_rooms) r
  where r.places > 0 order by r.units desc, r.places desc limit 1;
  select coalesce(sum(r.avail), 0), coalesce(bool_or(r.stale), false) into v_room.avail, v_room.stale
  from unnest(v_rooms) r;
  v_room.units := coalesce(v_room.units, 0); v_room.places := coalesce(v_room.places, 0);
  v_room.ord := p_ord; v_room.bucket := p_bucket; v_room.n := 0; v_room.hold := 0;
  v_room.trial_us := 0; v_room.now_at := p_now; v_room.wall := p_wall; v_room.read_at := p_now;
  v_room.life := p_def.grant_us;
  return v_room;
end $$;

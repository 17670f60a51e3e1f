-- Returns the room of a bucket whose limit has no definition, or which is parked: it is closed, not open.
-- p_ord, p_bucket: place in the call of engine.bucket_room, and id.
-- p_n, p_hold, p_probe: of its newest ledger row; null: it has none.
-- p_stale: as in engine.bucket_room.
-- p_now, p_at, p_wall: read_at, now_at and wall of engine.bucket_room.
create or replace function engine.undefined_room(
  p_ord integer, p_bucket bigint, p_n bigint, p_now bigint, p_at bigint, p_wall bigint, p_hold bigint, p_probe bigint,
  p_stale boolean, p_parked boolean)
returns engine.room language plpgsql immutable as $$
declare
  v_room engine.room;
begin
  v_room.ord := p_ord; v_room.bucket := p_bucket; v_room.n := coalesce(p_n, 0); v_room.now_at := p_at;
  v_room.wall := p_wall; v_room.read_at := p_now; v_room.hold := coalesce(p_hold, 0);
  v_room.probe := coalesce(p_probe, 0); v_room.stale := p_stale;
  v_room.avail := 0; v_room.units := 0; v_room.places := 0; v_room.most := 2147483647;
  v_room.period := 1000000; v_room.slack := 0;
  v_room.next := case when p_parked then 9007199254740991 else greatest(p_at + 1000000, p_hold) end;
  return v_room;
end $$;

-- When a bucket can have room for one more unit at the earliest: what time alone allows, by its rates, windows and holds.
-- A place of concurrency and the end of a pause come at any moment, so they count for nothing here. p_back: as if so many
-- units of what it granted were given back now.
create or replace function engine.earliest(p_bucket bigint, p_now bigint, p_back bigint) returns bigint language plpgsql stable as $$
declare
  v_room record;
  v_rooms bigint[];
  v_at bigint;
begin
  select * into v_room from engine.room(array[p_bucket], p_now, true);
  if v_room.version is null then return p_now; end if;
  if p_back = 0 then return v_room.next; end if;
  -- What a share leaves may be lent at any time.
  if exists (select 1 from sluice.bucket b join sluice.limit_def d on d.name = b.name and d.version = v_room.version
             where b.id = p_bucket and d.lend_us is not null) then return p_now; end if;
  v_rooms := (select d.room from sluice.bucket b join sluice.limit_def d on d.name = b.name and d.version = v_room.version
              where b.id = p_bucket);
  v_at := greatest(p_now, v_room.hold);
  for r in 1 .. cardinality(v_rooms) loop
    continue when v_room.drain[r] = 0 or v_room.debt[r] + v_room.weight[r] <= (v_rooms[r] + p_back) * v_room.weight[r];
    v_at := greatest(v_at, case
      -- Of a period that is full with what runs nobody knows.
      when v_room.margin[r] > 0 then p_now
      when v_room.slot[r] > 0 then engine.freed(v_room.slots[r:r], v_room.slot[r], v_room.now_at, v_rooms[r] + p_back)
      else v_room.now_at + (v_room.debt[r] - (v_rooms[r] + p_back - 1) * v_room.weight[r] + v_room.drain[r] - 1) / v_room.drain[r] end);
  end loop;
  return v_at;
end $$;

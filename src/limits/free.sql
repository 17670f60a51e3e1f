-- When so many units of a bucket are free if nobody else takes any (2^53 - 1: not by time). Of more than it holds: when they
-- have come, were some taken on the way; for a window or a quota a lower bound of that. Call under lock to act on the answer.
create or replace function engine.free(p_bucket bigint, p_now bigint, p_units bigint) returns bigint language plpgsql stable as $$
declare
  v_never constant bigint := 9007199254740991;
  v_room record;
  v_def sluice.limit_def;
  v_missing numeric;
  v_at bigint;
begin
  select * into v_room from engine.room(array[p_bucket], p_now);
  if p_units <= 1 or v_room.version is null then return v_room.next; end if;
  select d.* into v_def from sluice.bucket b join sluice.limit_def d on d.name = b.name and d.version = v_room.version where b.id = p_bucket;
  v_at := greatest(v_room.next, p_now);
  for r in 1 .. cardinality(v_def.drain) loop
    -- Of places each take needs one, whatever it costs.
    v_missing := v_room.debt[r] + (case when v_def.drain[r] = 0 then 1 else p_units::numeric end - v_def.room[r]) * v_def.weight[r];
    continue when v_missing <= 0;
    v_at := greatest(v_at, case
      when v_def.slot[r] > 0 then engine.freed(v_room.slots[r:r], v_def.slot[r], v_room.now_at, v_def.room[r] - p_units + 1)
      when v_def.drain[r] = 0 then v_never
      when v_def.margin[r] > 0 then engine.fit(v_def, r, v_room.debt[r], null, v_room.quota[r:r], least(p_units, v_def.room[r]), v_room.now_at, v_room.now_at - v_room.wall)
      else least(v_never, v_room.now_at + ceil(v_missing / v_def.drain[r])) end);
  end loop;
  return v_at;
end $$;

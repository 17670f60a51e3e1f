-- The vendor asked for silence: no grant from these buckets for p_us microseconds from now. Only ever lengthens a hold.
-- Counted from the bucket's own time: after a step back of the clock a hold must not be over before it began. p_cap:
-- the latest time that the caller's monotonic clock allows the store's clock to show (null: unknown).
create or replace function engine.hold(p_buckets bigint[], p_us bigint, p_cap bigint) returns void
language plpgsql as $$
declare
  v_room engine.room;
  v_rooms engine.room[] := '{}';
begin
  perform engine.lock(p_buckets);
  for v_room in select * from engine.room(p_buckets, engine.limiter_us(p_cap)) loop
    continue when v_room.hold >= v_room.now_at + p_us;
    v_room.hold := v_room.now_at + p_us;
    v_rooms := v_rooms || v_room;
  end loop;
  perform engine.append_ledger(v_rooms);
  -- For when it is released.
  update sluice.parked set hold = greatest(hold, engine.limiter_us(p_cap) + p_us)
  where kind = 'bucket' and id = any (p_buckets);
end $$;

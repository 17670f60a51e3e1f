-- Has those who wait for these buckets look as soon as there is room, for some was given back; where there is some now,
-- calls idle workers, p_units at most (each may have one slot). Call under lock_v1.
create or replace function sluice.sooner_v1(p_buckets bigint[], p_units bigint, p_now bigint) returns void language plpgsql as $$
declare
  v_room bigint[] := array(select r.bucket from sluice.room_v1(p_buckets, p_now) r where r.next <= p_now);
begin
  update sluice.list w set due = r.next
  from sluice.class c, sluice.room_v1(p_buckets, p_now) r
  where w.class = c.id and w.id = r.bucket and r.next < w.due;
  perform sluice.summon_v1(array_agg(w.class), p_units)
  from sluice.class c join sluice.list w on w.class = c.id and w.id = any (v_room);
end $$;

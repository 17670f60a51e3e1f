-- Has those who wait for these buckets look as soon as there is room, for some was given back; where there is some now,
-- calls idle workers, as many as units were given back (p_units; each may have one slot). Call under lock_v1.
create or replace function sluice.sooner_v1(p_buckets bigint[], p_units bigint[], p_now bigint) returns void language plpgsql as $$
declare
  v_room record;
  v_classes bigint[];
  v_need bigint;
begin
  for v_room in select r.bucket, r.ord, r.next from sluice.room_v1(p_buckets, p_now) r loop
    select array_agg(w.class), min(coalesce(w.need, 1)) into v_classes, v_need from sluice.list w where w.id = v_room.bucket and w.id <> 0;
    continue when v_classes is null;
    if v_need > 1 then
      v_room.next := (select r.next from sluice.room_v1(array[v_room.bucket], p_now, false, array[v_need]) r);
    end if;
    update sluice.list w set due = v_room.next where w.id = v_room.bucket and w.id <> 0 and w.due > v_room.next;
    if v_room.next <= p_now then perform sluice.summon_v1(v_classes, least(p_units[v_room.ord], 2147483647)::integer); end if;
  end loop;
end $$;

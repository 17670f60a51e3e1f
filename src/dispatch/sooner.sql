-- Has those who wait for these buckets look as soon as there is room, for some was given back; where there is some now,
-- calls idle workers, as many as units were given back (p_units; each may have one slot). Call under lock_v1.
create or replace function sluice.sooner_v1(p_buckets bigint[], p_units integer[], p_now bigint) returns void language plpgsql as $$
declare
  v_room record;
  v_classes bigint[];
begin
  perform sluice.hail_v1(p_buckets, p_now);
  for v_room in select r.bucket, r.ord, r.next from sluice.room_v1(p_buckets, p_now) r loop
    v_classes := array(select w.class from sluice.list w where w.id = v_room.bucket and w.id <> 0);
    continue when v_classes = '{}';
    update sluice.list w set due = v_room.next where w.id = v_room.bucket and w.id <> 0 and w.due > v_room.next;
    if v_room.next <= p_now then perform sluice.summon_v1(v_classes, p_units[v_room.ord]); end if;
  end loop;
end $$;

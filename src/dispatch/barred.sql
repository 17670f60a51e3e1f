-- Those of these classes that a worker leaves out just now, for a label of its own has no room: their work waits for another
-- worker, or for later. bucket: which has room for one of them first (null: none is barred), when (due), and as room_v1. Locks nothing; grant_v1 looks again.
create or replace function sluice.barred_v1(p_labels jsonb, p_classes bigint[], p_now bigint, 
  out classes bigint[], out bucket bigint, out due bigint, out period bigint, out slack bigint)
language plpgsql stable as $$
declare
  v_class record;
  v_room record;
begin
  classes := '{}';
  for v_class in select c.id, c.labels from sluice.class c where c.labels is not null and c.id = any (p_classes) loop
    select r.bucket, r.next, r.period, r.slack into v_room
    from sluice.room_v1(sluice.borne_v1(p_labels, v_class.labels), p_now) r
    -- One that has no row yet was never used.
    where r.avail < 1 and exists (select 1 from sluice.bucket b where b.id = r.bucket) order by r.next desc limit 1;
    continue when v_room.bucket is null;
    classes := classes || v_class.id;
    continue when v_room.next >= due;
    bucket := v_room.bucket;
    due := v_room.next;
    period := v_room.period;
    slack := v_room.slack;
  end loop;
end $$;

-- Those of these classes that a worker leaves out just now, for a label of its own has no room for the next job of the lane in
-- front: their work waits for another worker, or for later. One whose job needs more than is left is not left out where others
-- of them would take that: in the claim it keeps it, if it is its turn. bucket: which has room for one of all these first
-- (null: none is in want of room), when (due), and as room. Locks nothing; grant looks again.
create or replace function engine.barred(p_labels jsonb, p_classes bigint[], p_now bigint, 
  out classes bigint[], out bucket bigint, out due bigint, out period bigint, out slack bigint)
language plpgsql stable as $$
declare
  v_class record;
  v_lane sluice.lane;
  v_costs integer[];
  v_need bigint[];
  v_own bigint[];
  v_room record;
  v_short bigint[] := '{}';  -- classes that need more than is left, and of which bucket
  v_of bigint[] := '{}';
  v_taken bigint[] := '{}';  -- buckets that others of these classes have room in
begin
  classes := '{}';
  for v_class in select c.id, c.labels from sluice.class c where c.labels is not null and c.id = any (p_classes) loop
    v_own := engine.borne(p_labels, v_class.labels);
    select f.* into v_lane from (select floor from sluice.list where class = v_class.id and id = 0 order by v desc limit 1) l
    cross join lateral (select * from sluice.lane r where r.class = v_class.id and r.list = 0 and r.vstart >= l.floor order by r.vstart, r.id limit 1) f;
    v_need := null;
    if v_lane.costed then
      select j.costs into v_costs from sluice.job j
      where j.lane = v_lane.id and j.seq >= v_lane.bound and j.claim is null and j.due_at is null order by j.seq limit 1;
      v_need := array(select v_costs[array_position(v_lane.buckets, sluice.hash64(a))]
                      from unnest(v_class.labels) with ordinality u (a, o) order by o);
    end if;
    select r.bucket, r.next, r.period, r.slack, r.units > 0 and r.places > 0 as short into v_room
    from engine.room(v_own, p_now, false, v_need) r
    -- One that has no row yet was never used; a job that costs more than there ever is waits for nothing.
    where (r.units < greatest(v_need[r.ord], 1) or r.places < 1) and greatest(v_need[r.ord], 1) <= r.most
      and exists (select 1 from sluice.bucket b where b.id = r.bucket offset 0) order by r.next desc limit 1;
    if v_room.bucket is null then
      if v_lane.id is not null then v_taken := v_taken || v_own; end if;
      continue;
    end if;
    if v_room.short then
      v_short := v_short || v_class.id;
      v_of := v_of || v_room.bucket;
    else
      classes := classes || v_class.id;
    end if;
    continue when v_room.next >= due;
    bucket := v_room.bucket;
    due := v_room.next;
    period := v_room.period;
    slack := v_room.slack;
  end loop;
  classes := classes || array(select u.c from unnest(v_short, v_of) u (c, b) where u.b <> all (v_taken));
end $$;

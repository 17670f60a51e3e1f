-- Returns the classes that a worker leaves out of a claim, because one of its labels has no room for the next job of
-- the class's first lane: those jobs wait for another worker, or for room. A class whose job needs more units than the
-- label has left stays in the claim if another of these classes would use those units: there the job reserves them when
-- its turn comes. It locks nothing; `engine.decide_claim` checks again.
-- p_labels: the worker's labels.
-- p_classes: classes with something to do.
-- classes: those to leave out.
-- bucket: of the label buckets without room, the one that has room first. Null: all have room.
-- due, period, slack: next, period and slack of that bucket, as in `engine.bucket_room`.
-- kept: a class stays in the claim although its job needs more units than the label has left.
create or replace function engine.find_classes_without_room(p_labels jsonb, p_classes bigint[], p_now bigint,
  out classes bigint[], out bucket bigint, out due bigint, out period bigint, out slack bigint, out kept boolean)
language plpgsql stable as $$
declare
  v_class record;
  v_lane sluice.lane;
  v_costs integer[];
  v_need bigint[];
  v_own bigint[];
  v_room record;
  v_short bigint[] := '{}';  -- classes whose next job needs more than is left
  v_of bigint[] := '{}';     -- and of which bucket
  v_taken bigint[] := '{}';  -- buckets in which another of these classes has room
begin
  classes := '{}';
  for v_class in select c.id, c.labels from sluice.class c where c.labels is not null and c.id = any (p_classes) loop
    v_own := array(select sluice.hash64(split_part(a, '@', 1) || ':' || (p_labels ->> split_part(a, '@', 2)))
                   from unnest(v_class.labels) with ordinality u (a, o) order by o);
    select f.* into v_lane
    from (select floor from sluice.list where class = v_class.id and id = 0 order by v desc limit 1) l
    cross join lateral (
      select * from sluice.lane r where r.class = v_class.id and r.list = 0 and r.vstart >= l.floor
      order by r.vstart, r.id limit 1) f;
    v_need := null;
    if v_lane.costed then
      select f.* into v_lane from (  -- the one that a claim looks at first
        select * from sluice.lane r where r.class = v_class.id and r.list = 0 and r.vstart = v_lane.vstart
        order by r.id limit 64) f order by f.rank, f.id limit 1;
      select j.costs into v_costs from sluice.job j
      where j.lane = v_lane.id and j.seq >= v_lane.bound and j.claim is null and j.due_at is null
      order by j.seq limit 1;
      v_need := array(select v_costs[array_position(v_lane.buckets, sluice.hash64(a))]
                      from unnest(v_class.labels) with ordinality u (a, o) order by o);
    end if;
    select r.bucket, r.next, r.period, r.slack, r.units > 0 and r.places > 0 as short into v_room
    from unnest(engine.recorded_room(v_own, p_now, false, v_need)) r
    -- A bucket without a row was never used, so it has room. A job that costs more than the capacity never gets room,
    -- so its class stays in the claim, which sets that job aside. A stale bucket is renewed after the claim.
    where not r.stale
      and (r.units < greatest(v_need[r.ord], 1) or r.places < 1) and greatest(v_need[r.ord], 1) <= r.most
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
  kept := v_of && v_taken;
  classes := classes || array(select u.c from unnest(v_short, v_of) u (c, b) where u.b <> all (v_taken));
end $$;

-- Makes the lists of these buckets due as soon as the buckets have room, after units were given back, and notifies
-- takers. When there is room now, it notifies idle workers, because each may have one slot: as many as jobs can begin
-- by what was given back, if each needs the fewest units that are reserved for one. A lane that can use any member of a
-- pool waits in the pool's list. No lane waits for the bucket of a worker's label; only workers wait for it. Call under
-- the locks of `engine.lock_buckets_and_pools`.
-- p_units: the units that were given back to each bucket
create or replace function engine.make_lists_due(p_buckets bigint[], p_units bigint[], p_now bigint) returns void
language plpgsql as $$
declare
  v_room record;
  v_classes bigint[];
begin
  perform engine.notify_takers(p_buckets, p_now);
  for v_room in
    with given as (
      select u.id, u.units, b.name, b.key, d.label, d.members from unnest(p_buckets, p_units) u (id, units)
      left join sluice.bucket b on b.id = u.id
      left join lateral (
        select label, members from sluice.limit_def where name = b.name order by version desc limit 1) d on true
    ), waited as (
      select g.id, g.units, case when g.label is not null then g.name || '@' || g.label end as label_limit,
        g.label, g.key
      from given g
      union all
      select sluice.hash64(g.name || '*'), sum(g.units)::bigint, null, null, null
      from given g where g.members is not null group by 1
    )
    select w.*, l.classes, r.next, ceil(w.units::numeric / greatest(1, l.need))::bigint as jobs from waited w
    cross join lateral (
      select array_agg(k.class) as classes,
             (select min(r.need) from sluice.reservation r where r.bucket = w.id) as need
      from sluice.list k where k.id = w.id and k.id <> 0) l
    cross join lateral unnest(engine.bucket_room(
      array[w.id], p_now, false, case when l.need > 1 then array[l.need] end)) r
  loop
    if v_room.label_limit is not null and v_room.next <= p_now then
      v_classes := array(
        select c.id from sluice.class c where c.labels is not null and v_room.label_limit = any (c.labels));
      perform engine.wake_workers_for_room(v_classes, v_room.jobs, v_room.label, v_room.key);
    end if;
    continue when v_room.classes is null;
    update sluice.list w set due = v_room.next where w.id = v_room.id and w.id <> 0 and w.due > v_room.next;
    if v_room.next <= p_now then perform engine.wake_workers_for_room(v_room.classes, v_room.jobs); end if;
  end loop;
end $$;

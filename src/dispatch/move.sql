-- Moves lanes after a claim: on to their next bound and virtual start, into the list of the bucket that denied them,
-- out of all lists when empty; and keeps the due time of each list. p_vstart is null for a lane that is alone. True when
-- something is still worth claiming now.
create or replace function sluice.move_v1(
  p_now bigint, p_lane sluice.lane[], p_take integer[], p_blocked integer[], p_buckets bigint[],
  p_fairs bigint[], p_vstart bigint[], p_moves sluice.move[]) returns boolean
language plpgsql as $$
declare
  v_alone boolean := p_vstart is null;
begin
  update sluice.lane l set
    n = case when d.dry then 0 else l.n - d.taken end,
    bound = case when d.seen > 0 and d.seen = d.taken then d.last + 1 else l.bound end,
    -- Alone, nobody is compared with it: leaving the virtual start keeps the update within the page (HOT).
    vstart = case when v_alone then l.vstart else p_vstart[array_position(p_fairs, l.fair)] end,
    list = case when d.dry or l.n - d.taken <= 0 then null when d.blocked > 0 then p_buckets[d.blocked] else 0 end
  from (
    select q.id, t.take, b.blocked, coalesce(m.seen, 0) as seen, coalesce(m.taken, 0) as taken, m.last,
           t.take > coalesce(m.seen, 0) and coalesce(m.seen, 0) = coalesce(m.taken, 0) as dry
    from unnest(p_lane) with ordinality q (id, class, list, vstart, priority, bound, n, weight, fair, buckets, o)
    join unnest(p_take) with ordinality t (take, o) on t.o = q.o
    join unnest(p_blocked) with ordinality b (blocked, o) on b.o = q.o
    left join unnest(p_moves) m on m.lane = q.id
  ) d where l.id = d.id;
  if not v_alone then
    update sluice.lane l set vstart = p_vstart[array_position(p_fairs, l.fair)]
    from (select s.id from sluice.lane s where s.fair = any (p_fairs) and s.list is not null
          and s.id <> all (select q.id from unnest(p_lane) q) for update skip locked) k
    where l.id = k.id;
  end if;
  -- Lists that lanes left, and lists that they joined.
  with touched as (
    select distinct q.class, x.bucket
    from unnest(p_lane) with ordinality q (id, class, list, vstart, priority, bound, n, weight, fair, buckets, o)
    join unnest(p_blocked) with ordinality b (blocked, o) on b.o = q.o
    cross join lateral (values (q.list), (p_buckets[nullif(b.blocked, 0)])) x (bucket) where x.bucket <> 0
  ), filled as (
    select t.*, exists (select 1 from sluice.lane l where l.class = t.class and l.list = t.bucket) as waiting from touched t
  ), emptied as (
    delete from sluice.wait w using filled f where not f.waiting and w.class = f.class and w.bucket = f.bucket
  )
  insert into sluice.wait (class, bucket, due, period, slack)
  select f.class, f.bucket, r.next, r.period, r.slack
  from filled f cross join lateral sluice.room_v1(array[f.bucket], p_now) r where f.waiting
  on conflict (class, bucket) do update set due = excluded.due, period = excluded.period, slack = excluded.slack;
  return exists (select 1 from unnest(p_moves) m where m.seen > m.taken);
end $$;

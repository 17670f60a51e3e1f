-- Keeps floor and due time of the lists that lanes left or joined; one that nobody stands in any more goes, but for the
-- ready one, whose floor tells those who come later how far the class was. p_least: the smallest virtual start that was
-- given (null: none was).
create or replace function sluice.list_v1(p_now bigint, p_lane sluice.lane[], p_stored bigint[], p_lists bigint[], p_least bigint)
returns void language plpgsql as $$
begin
  with touched as (
    select q.class, x.id, min(p_stored[q.ordinality]) as least from unnest(p_lane) with ordinality q
    cross join lateral (values (q.list), (p_lists[q.ordinality])) x (id) where x.id is not null group by 1, 2
  ), was as (
    select t.class, t.id, l.ctid as tid, l.v, (
      select r.vstart from sluice.turn r where r.class = t.class and r.list = t.id and r.vstart >= least(l.floor, t.least)
      order by r.vstart limit 1) as front
    from touched t
    left join lateral (select ctid, v, floor from sluice.list where class = t.class and id = t.id order by v desc limit 1) l on true
  ), kept as (
    update sluice.list l set v = l.v + 1, floor = coalesce(w.front, greatest(l.floor, p_least)), due = sluice.after_v1(w.id, r.next, p_now), period = r.period, slack = r.slack
    from was w left join lateral (select * from sluice.room_v1(array[w.id], p_now) where w.id <> 0) r on true
    where l.ctid = w.tid and (w.front is not null or w.id = 0)
  ), gone as (
    delete from sluice.list l using was w where l.ctid = w.tid and w.front is null and w.id <> 0
  )
  insert into sluice.list (class, id, v, floor, due, period, slack)
  select w.class, w.id, p_now, w.front, sluice.after_v1(w.id, r.next, p_now), r.period, r.slack
  from was w cross join lateral sluice.room_v1(array[w.id], p_now) r where w.v is null and w.front is not null and w.id <> 0;
end $$;

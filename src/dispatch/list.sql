-- Keeps floor and due time of the lists that lanes left or joined; one that nobody stands in any more goes, but for the
-- ready one, whose floor tells those who come later how far the class was. p_least: the smallest virtual start that was
-- given, lifted (null: none was). A list is due when its front lane's next job fits beside what is kept for lanes of other classes
-- (holder); where only those are in its way, soon; so too when nobody got anything (p_idle), whatever it was.
create or replace function engine.list(p_now bigint, p_lane sluice.lane[], p_stored bigint[], p_lists bigint[], p_least bigint, p_idle boolean)
returns void language plpgsql as $$
declare
  v_costed boolean := exists (select 1 from unnest(p_lane) q where q.costed);
begin
  with touched as (
    select q.class, x.id, min(p_stored[q.ordinality]) as least from unnest(p_lane) with ordinality q
    cross join lateral (values (q.list), (p_lists[q.ordinality])) x (id) where x.id is not null group by 1, 2
  ), was as (
    select t.class, t.id, l.ctid as tid, l.v, l.holder, l.asked, least(l.floor, t.least) as floor, (
      select r.vstart from sluice.turn r where r.class = t.class and r.list = t.id and r.vstart >= least(l.floor, t.least)
      order by r.vstart limit 1) as front
    from touched t
    left join lateral (select ctid, v, floor, holder, asked from sluice.list where class = t.class and id = t.id order by v desc limit 1) l on true
  ), held as (
    -- offset 0: not asked where nothing is kept; whoever has a number (o) has a bucket, which is asked for its room.
    select w.*, h.lane, h.need, u.units,
           case when w.id <> 0 and w.front is not null then row_number() over (order by w.id = 0 or w.front is null) end as o
    from was w
    left join lateral (
      select k.* from (select 1 where w.id <> 0 and w.front is not null and (v_costed or w.holder is not null) offset 0) c
      cross join lateral engine.holder(w.class, w.id, w.floor, w.holder, p_now) k) h on true
    left join lateral (select sum(k.need) as units from sluice.list k
                       where k.id = w.id and k.holder is not null and k.class <> w.class and k.due > p_now - 1000000
                         and (h.lane is distinct from w.holder or h.lane is null or (k.asked, k.class) < (w.asked, w.class))) u on true
  ), asked as (
    select r.* from (select array_agg(h.id order by h.o) as ids, array_agg(case when h.need > 1 or h.units > 0
                       then (coalesce(h.need, 1) + coalesce(h.units, 0))::bigint end order by h.o) as needs
                     from held h where h.o is not null having count(*) > 0) q
    cross join lateral engine.room(q.ids, p_now, false, q.needs) r
  ), room as (
    select h.*, r.period, r.slack, case when h.lane = h.holder then h.asked when h.lane is not null then p_now end as since,
           case when h.need > r.most then p_now when h.units > 0 then greatest(r.next, p_now + 50000)
                when p_idle and v_costed and h.id <> 0 then greatest(r.next, p_now + 20000) else r.next end as due
    from held h left join asked r on r.ord = h.o
  ), kept as (
    update sluice.list l set v = l.v + 1, floor = coalesce(w.front, greatest(l.floor, p_least - (select k.lift from sluice.class k where k.id = l.class))), due = engine.after(w.id, w.due, p_now), period = w.period, slack = w.slack,
      holder = w.lane, need = w.need, asked = w.since
    from room w where l.ctid = w.tid and (w.front is not null or w.id = 0)
  ), gone as (
    delete from sluice.list l using was w where l.ctid = w.tid and w.front is null and w.id <> 0
  )
  insert into sluice.list (class, id, v, floor, due, period, slack, holder, need, asked)
  select w.class, w.id, p_now, w.front, engine.after(w.id, w.due, p_now), w.period, w.slack, w.lane, w.need, w.since
  from room w where w.v is null and w.front is not null and w.id <> 0;
end $$;

-- Candidate lanes of these classes in fair order, under the classes' locks: those that are ready, and those whose bucket
-- is due. Of each fair key as many as leave room for the others. stored: the turn under which the lane was found; vstart: where its
-- fair key stands, which beside other classes counts from the class's lift; horizon: virtual start of fair keys that were not read
-- (null: all were); cut: some lanes of a fair key were not read. raise: by how much more its class (of) has to be lifted.
-- PL/pgSQL, because a plain SQL function that cannot be inlined is planned anew at each call.
create or replace function engine.pick(p_classes bigint[], p_now bigint, p_since bigint, p_most integer)
returns table (lane bigint, stored bigint, vstart bigint, horizon bigint, cut boolean, of bigint, raise bigint) language plpgsql stable as $$
begin
  return query
  with list as (
    select c as class, 0::bigint as id, l.floor, k.lift from unnest(p_classes) c
    cross join lateral (select lift from sluice.class where id = c limit 1) k
    cross join lateral (select floor from sluice.list where class = c and id = 0 order by v desc limit 1) l
    union all
    select c, w.id, w.floor, k.lift from unnest(p_classes) c
    cross join lateral (select lift from sluice.class where id = c limit 1) k
    cross join lateral (select id, floor from sluice.list where class = c and due > p_since and due <= p_now order by due limit p_most) w
  ), found as (
    select l.class, l.id as list, l.lift, t.fair, t.vstart as stored, l.lift + greatest(t.vstart, f.vstart) as own,
           case when t.o = p_most then l.lift + t.vstart end as last
    from list l cross join lateral (
      select u.*, row_number() over (order by u.vstart, u.fair) as o
      from (select r.vstart, r.fair from sluice.turn r where r.class = l.class and r.list = l.id and r.vstart >= l.floor
            order by r.vstart, r.fair limit p_most) u) t
    cross join lateral (select k.vstart from sluice.fair k where k.class = l.class and k.id = t.fair order by k.v desc limit 1) f
  ), front as (
    -- A class that was held back beside others (paused, or nobody served it) is 64 turns behind them at most.
    select f.class, min(f.lift) as lift, max(f.own) as far, max(min(least(f.own, f.last))) over () - 64000000 as lead from found f group by f.class
  ), lag as (
    -- Lifted whole, that it stays fair within itself; but not where only some of it lag, before slow limits of their own.
    select f.class, f.lead, case when f.far >= f.lead then 0 else greatest(0, f.lead - greatest(f.far, f.lift + (
      select t.vstart from sluice.turn t where t.class = f.class and t.list = 0 order by t.vstart desc limit 1))) end as raise
    from front f
  ), turn as (
    -- A fair key with turns in several classes or lists is as far as it is in any of them.
    select f.class, f.list, f.fair, f.stored, max(greatest(f.own + l.raise, l.lead)) over (partition by f.fair) as vstart,
           greatest(f.last + l.raise, case when f.last is not null then l.lead end) as last, l.raise
    from found f join lag l on l.class = f.class
  ), ranked as (
    select t.*, row_number() over (order by t.vstart, t.fair) as o, min(t.last) over () as unread,
           greatest(1, p_most / least(p_most, count(*) over ())) as share
    from turn t
  ), seated as (
    select s.lane, s.rank, r.stored, r.vstart, r.class, r.raise, r.unread, s.o = r.share as cut, r.o > p_most as beyond
    from ranked r cross join lateral (
      select l.lane, l.rank, row_number() over (order by l.rank, l.lane) as o
      from (select k.lane, k.rank from sluice.seat k where k.class = r.class and k.list = r.list and k.fair = r.fair
            order by k.rank, k.lane limit case when r.o > p_most then 1 else r.share end) l) s
    where r.o <= p_most + 1
  )
  select s.lane, s.stored, s.vstart, least(s.unread, min(s.vstart) filter (where s.beyond) over ()), s.cut, s.class, s.raise
  from seated s order by s.beyond, s.vstart, s.rank, s.lane limit p_most;
end $$;

-- Candidate lanes of these classes in fair order, under the classes' locks: those that are ready, and those whose bucket
-- is due. Of each fair key as many as leave room for the others. stored: the turn under which the lane was found;
-- horizon: virtual start of fair keys that were not read (null: all were); cut: some lanes of a fair key were not read.
-- PL/pgSQL, because a plain SQL function that cannot be inlined is planned anew at each call.
create or replace function sluice.pick_v1(p_classes bigint[], p_now bigint, p_since bigint, p_most integer)
returns table (lane bigint, stored bigint, vstart bigint, horizon bigint, cut boolean) language plpgsql stable as $$
declare
  v_lead bigint;
begin
  -- A class that was held back beside others (paused, or nobody served it) is 64 turns behind them at most.
  if cardinality(p_classes) > 1 then
    v_lead := (select max(least(sluice.front_v1(c, 0), (
      select min(w.floor) from (select floor from sluice.list where class = c and due > p_since and due <= p_now order by due limit p_most) w)))
      - 64000000 from unnest(p_classes) c);
  end if;
  return query
  with list as (
    select c as class, 0::bigint as id, l.floor from unnest(p_classes) c
    cross join lateral (select floor from sluice.list where class = c and id = 0 order by v desc limit 1) l
    union all
    select c, w.id, w.floor from unnest(p_classes) c cross join lateral (
      select id, floor from sluice.list where class = c and due > p_since and due <= p_now order by due limit p_most) w
  ), turn as (
    -- A fair key with turns in several classes or lists is as far as it is in any of them.
    select l.class, l.id as list, t.fair, t.vstart as stored, max(greatest(t.vstart, f.vstart, v_lead)) over (partition by t.fair) as vstart,
           case when t.o = p_most then greatest(t.vstart, v_lead) end as last
    from list l cross join lateral (
      select u.*, row_number() over (order by u.vstart, u.fair) as o
      from (select r.vstart, r.fair from sluice.turn r where r.class = l.class and r.list = l.id and r.vstart >= l.floor
            order by r.vstart, r.fair limit p_most) u) t
    cross join lateral (select k.vstart from sluice.fair k where k.class = l.class and k.id = t.fair order by k.v desc limit 1) f
  ), ranked as (
    select t.*, row_number() over (order by t.vstart, t.fair) as o, min(t.last) over () as unread,
           greatest(1, p_most / least(p_most, count(*) over ())) as share
    from turn t
  ), seated as (
    select s.lane, s.rank, r.stored, r.vstart, r.unread, s.o = r.share as cut, r.o > p_most as beyond
    from ranked r cross join lateral (
      select l.lane, l.rank, row_number() over (order by l.rank, l.lane) as o
      from (select k.lane, k.rank from sluice.seat k where k.class = r.class and k.list = r.list and k.fair = r.fair
            order by k.rank, k.lane limit case when r.o > p_most then 1 else r.share end) l) s
    where r.o <= p_most + 1
  )
  select s.lane, s.stored, s.vstart, least(s.unread, min(s.vstart) filter (where s.beyond) over ()), s.cut
  from seated s order by s.beyond, s.vstart, s.rank, s.lane limit p_most;
end $$;

-- Returns the lanes among which a claim chooses, in fair order: by the turns of their fair keys (start), and the lanes
-- of one fair key by rank (`engine.lane_rank`). It does one reading for `engine.select_lanes`. It is PL/pgSQL, because
-- an SQL function that cannot be inlined is planned at each call. Columns that are not explained here: as in
-- engine.candidates.
-- step: what a unit of the lane's jobs adds to the turn of its fair key. While first attempts and retries of a fair key
-- both wait, a job of either counts twice, so that the two together get no more than one turn.
-- lift: what to add to the turns of the lane's class, so that they can be compared with those of other classes.
-- raise: how much further that class has to be lifted.
create or replace function engine.read_candidate_lanes(
  p_classes bigint[], p_new bigint[], p_now bigint, p_since bigint, p_most integer)
returns table (lane sluice.lane, start bigint, step bigint, lift bigint, horizon bigint, cut boolean, raise bigint)
language plpgsql stable as $$
begin
  return query
  with found as materialized (
    select t.lane, (t.lane).class, t.lift, t.lift + t.own as own, t.lift + t.last as last,
           1000000::bigint / greatest(1, (t.lane).weight) * case
             -- The two may wait in different classes.
             when t.paired or min((t.lane).fair) over k <> max((t.lane).fair) over k then 2 else 1 end as step
    from engine.read_turns(p_classes, p_now, p_since, p_most) t
    window k as (partition by (t.lane).fair | 1)
  ), front as (
    -- A class that was held back (paused, or without a worker) may be at most 64 turns behind (`engine.seat_lanes`),
    -- and a class in which no job waited until now may not be behind at all. Corrupt turns could be so large that a
    -- class which followed them would have no turns left. So no class is lifted beyond half of the range of bigint.
    select f.class, min(f.lift) as lift, max(f.own) as far,
           least(4611686018427387904, max(min(least(f.own, f.last))) over ())
             - case when f.class = any (p_new) then 0 else 64000000 end as foremost
    from found f group by f.class
  ), lag as (
    -- A class is lifted as a whole, so that it stays fair within itself; but not when only some of its lanes lag,
    -- before slow limits of their own.
    select f.class, f.foremost,
           case when f.far >= f.foremost then 0 else greatest(0, f.foremost - greatest(f.far, f.lift + (
             select t.vstart from sluice.lane t
             where t.class = f.class and t.list = 0 and t.vstart is not null
             order by t.vstart desc limit 1))) end as raise
    from front f
  ), turn as (
    -- A fair key with turns in several classes or lists stands where it is furthest.
    select f.lane, f.step, f.lift + l.raise as lift,
           max(greatest(f.own + l.raise, l.foremost)) over (partition by (f.lane).fair) as start,
           greatest(f.last + l.raise, case when f.last is not null then l.foremost end) as last, l.raise
    from found f join lag l on l.class = f.class
  ), ranked as (
    select t.*, row_number() over (order by t.start, (t.lane).fair) as o, min(t.last) over () as unread,
           greatest(1, p_most / least(p_most, count(*) over ())) as share
    from turn t
  ), chosen as (
    select r.lane, r.start, r.step, r.lift, r.raise, r.unread, false as cut, r.o > p_most as beyond
    from ranked r where r.o <= p_most + 1
    union all
    -- Further lanes of the same fair keys, if the fair keys leave room for them.
    select b.lane, r.start, r.step, r.lift, r.raise, r.unread, b.o = r.share - 1, false
    from ranked r cross join lateral (
      select k.lane, row_number() over (order by k.rank, k.id) as o
      from (select l as lane, l.rank, l.id from sluice.lane l
            where l.class = (r.lane).class and l.list = (r.lane).list and l.fair = (r.lane).fair and l.vstart is null
            order by l.rank, l.id limit r.share - 1) k) b
    where r.o <= p_most and r.share > 1
  )
  select c.lane, c.start, c.step, c.lift, least(c.unread, min(c.start) filter (where c.beyond) over ()), c.cut, c.raise
  from chosen c order by c.beyond, c.start, (c.lane).rank, (c.lane).id limit p_most;
end $$;

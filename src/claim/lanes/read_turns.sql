-- Reads the turns in front of the lists of these classes that are ready or due, up to p_most of each list, in order.
-- p_now, p_since: lists that became due after p_since and by p_now, in microseconds
-- lift: the class's lift
-- own: the furthest turn of the lane's fair key in the class; it may have been served elsewhere since
-- paired: first attempts and retries of the lane's fair key both wait in the lists that are read. A lane that is empty,
-- parked, or behind another limit takes no turns now, so it halves nothing.
-- last: the turn, if it is the last that was read of a list that may have more; else null
create or replace function engine.read_turns(p_classes bigint[], p_now bigint, p_since bigint, p_most integer)
returns table (lane sluice.lane, lift bigint, own bigint, paired boolean, last bigint)
language plpgsql stable rows 100 as $$
begin
  return query
  with open as materialized (
    select w.id as class, w.lift, w.grouped, i.id, i.floor
    from (select k.* from unnest(p_classes) c cross join lateral (select * from sluice.class where id = c limit 1) k) w
    cross join lateral (
      (select i.id, i.floor from sluice.list i where i.class = w.id and i.id = 0 order by i.v desc limit 1)
      union all
      (select i.id, i.floor from sluice.list i
       where i.class = w.id and i.due > p_since and i.due <= p_now and i.id <> 0 order by i.due limit p_most)) i
  )
  select t.l, t.lift, greatest((t.l).vstart, case when t.grouped then (
           select k.vstart from sluice.lane k
           where k.class = (t.l).class and k.fair = (t.l).fair and k.vstart is not null
           order by k.vstart desc limit 1) end),
         -- For EXISTS the planner may read all lanes of the list into a hash table; without `offset 0` it may read the
         -- list for each lane.
         (select true from (
            select k.class, k.list from sluice.lane k
            where k.class = (t.l).class and k.fair = (t.l).fair # 1 and k.vstart is not null offset 0) k
          where exists (select 1 from open o where o.class = k.class and o.id = k.list) limit 1) is not null,
         case when t.o = p_most then (t.l).vstart end
  from (
    select f.l, i.lift, i.grouped, f.o from open i
    cross join lateral (
      select u.l, row_number() over (order by u.vstart, u.id) as o
      from (select r as l, r.vstart, r.id from sluice.lane r
            where r.class = i.class and r.list = i.id and r.vstart >= i.floor
            order by r.vstart, r.id limit p_most) u) f) t;
end $$;

-- Gives the turn of each of these fair keys in a list to one lane of the key, the one with the smallest rank. The key's
-- other lanes in the list wait behind that lane (vstart null). The turn is the furthest of all the key's lanes in the
-- class. Call under the class's lock, after lanes have moved.
-- p_fairs: the fair keys, each once
create or replace function engine.choose_front_lanes(p_class bigint, p_list bigint, p_fairs bigint[]) returns void
language plpgsql as $$
begin
  with member as (
    select f.fair, x.* from unnest(p_fairs) f (fair) cross join lateral (
      -- A condition on the list within this query could make the planner read all of the list.
      select k.id, k.v, k.rank, k.vstart from (
        select * from sluice.lane k where k.class = p_class and k.fair = f.fair and k.vstart is not null offset 0) k
      where k.list = p_list
      union all
      (select k.id, k.v, k.rank, k.vstart from sluice.lane k
       where k.class = p_class and k.list = p_list and k.fair = f.fair and k.vstart is null
       order by k.rank, k.id limit 1)) x
  ), place as (
    select m.*, row_number() over (partition by m.fair order by m.rank, m.id) as o,
           count(m.vstart) over (partition by m.fair) as fronts
    from member m
  )
  update sluice.lane l set v = l.v + 1, vstart = case when p.o = 1 then (
      select k.vstart from sluice.lane k
      where k.class = p_class and k.fair = p.fair and k.vstart is not null order by k.vstart desc limit 1) end
  from place p where l.id = p.id and l.v = p.v and ((p.o = 1) <> (p.vstart is not null) or p.fronts > 1);
end $$;

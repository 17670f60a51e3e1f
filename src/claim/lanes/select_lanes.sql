-- Selects candidate lanes of these classes in fair order, under the classes' locks: ready lanes, and lanes of lists
-- that are due. It selects several lanes of a fair key where that leaves room for other keys. A fair key that was
-- served in one list stays behind in its other lists until a claim looks at them. When more such turns than a claim
-- reads stand in front, no claim knows which lanes come after them, and no lane can be served. So when too few lanes
-- may be served before the horizon, it moves the turns that it reads forward to the real position of their fair keys,
-- and reads again.
create or replace function engine.select_lanes(
  p_classes bigint[], p_new bigint[], p_want integer, p_now bigint, p_since bigint, p_most integer)
returns engine.candidates language plpgsql as $$
declare
  v_found engine.candidates;
  v_raised bigint[];
  v_raises bigint[];
begin
  for round in 1 .. 3 loop
    select array_agg(p.lane), array_agg(p.start), array_agg(p.start - p.lift), array_agg(p.step), min(p.horizon),
           coalesce(bool_or(p.cut), false),
           array_agg((p.lane).class) filter (where p.raise > 0), array_agg(p.raise) filter (where p.raise > 0)
    into v_found.lanes, v_found.starts, v_found.turns, v_found.steps, v_found.horizon, v_found.cut, v_raised, v_raises
    from engine.read_candidate_lanes(p_classes, p_new, p_now, p_since, p_most) p;
    -- The whole class is lifted, so that those of its lanes that were read do not fall behind its others. A class that
    -- another transaction announces or retires just now is skipped, because that transaction may wait for this class.
    if v_raised is not null then
      update sluice.class k set lift = k.lift + r.raise
      from (select distinct of, raise from unnest(v_raised, v_raises) u (of, raise)) r
      where k.id = r.of and k.id = any (array(
        select id from sluice.class where id = any (v_raised) for update skip locked));
    end if;
    exit when v_found.horizon is null or round = 3
      or (select count(*) from unnest(v_found.starts) s where s <= v_found.horizon)
        >= least(p_want, cardinality(v_found.lanes));
    with turn as (
      select t.lane, max(t.lift + t.own) over (partition by (t.lane).fair) - t.lift as goal
      from engine.read_turns(p_classes, p_now, p_since, p_most) t
    )
    update sluice.lane l set v = l.v + 1, vstart = t.goal from turn t
    where l.id = (t.lane).id and l.v = (t.lane).v and t.goal > (t.lane).vstart;
    exit when not found;
  end loop;
  return v_found;
end $$;

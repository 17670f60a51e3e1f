-- Candidate lanes of these classes in fair order, under the classes' locks: those that are ready, and those whose bucket is due. Of
-- each fair key as many as leave room for the others. starts: where each one's fair key stands, which beside other classes counts
-- from the class's lift; lifts: that lift. horizon: the virtual start of fair keys that were not read (null: all were); cut: some
-- lanes of a fair key were not read. Where turns that stand behind their fair keys leave too few to be served before the horizon,
-- these are moved on first (move_turns.sql). p_new: classes of which nobody waited until now.
create or replace function engine.select_lanes(
  p_classes bigint[], p_new bigint[], p_want integer, p_now bigint, p_since bigint, p_most integer,
  out lanes sluice.lane[], out starts bigint[], out lifts bigint[], out horizon bigint, out cut boolean) language plpgsql as $$
declare
  v_raised bigint[];
  v_raises bigint[];
begin
  for round in 1 .. 3 loop
    select array_agg(p.lane), array_agg(p.start), array_agg(p.lift), min(p.horizon), coalesce(bool_or(p.cut), false),
           array_agg((p.lane).class) filter (where p.raise > 0), array_agg(p.raise) filter (where p.raise > 0)
    into lanes, starts, lifts, horizon, cut, v_raised, v_raises from engine.rank_lanes(p_classes, p_new, p_now, p_since, p_most) p;
    -- All of the class together: those of it that were looked at are not to fall behind the others.
    -- One that is being announced or retired just now is left: whoever does that may wait for this class.
    if v_raised is not null then
      update sluice.class k set lift = k.lift + r.raise
      from (select distinct of, raise from unnest(v_raised, v_raises) u (of, raise)) r
      where k.id = r.of and k.id = any (array(select id from sluice.class where id = any (v_raised) for update skip locked));
    end if;
    exit when horizon is null or (select count(*) from unnest(starts) s where s <= select_lanes.horizon) >= least(p_want, cardinality(lanes));
    exit when round = 3 or engine.move_turns(p_classes, p_now, p_since, p_most) = 0;
  end loop;
end $$;

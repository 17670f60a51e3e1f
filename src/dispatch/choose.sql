-- The lanes among which a claim of p_want shares out what there is: pick, which has all else explained. Where turns that
-- stand behind their fair keys leave too few to be served before the horizon, these are moved on first (refile).
create or replace function engine.choose(
  p_classes bigint[], p_want integer, p_now bigint, p_since bigint, p_most integer,
  out lanes bigint[], out stored bigint[], out starts bigint[], out horizon bigint, out cut boolean)
language plpgsql as $$
declare
  v_classes bigint[];
  v_raises bigint[];
begin
  for round in 1 .. 3 loop
    select array_agg(p.lane), array_agg(p.stored), array_agg(p.vstart), min(p.horizon), coalesce(bool_or(p.cut), false),
           array_agg(p.of) filter (where p.raise > 0), array_agg(p.raise) filter (where p.raise > 0)
    into lanes, stored, starts, horizon, cut, v_classes, v_raises from engine.pick(p_classes, p_now, p_since, p_most) p;
    -- All of the class together: who of it was looked at is not to fall behind who was not.
    if v_classes is not null then
      update sluice.class k set lift = k.lift + r.raise from (select distinct of, raise from unnest(v_classes, v_raises) u (of, raise)) r where k.id = r.of;
    end if;
    exit when horizon is null or (select count(*) from unnest(starts) s where s <= choose.horizon) >= least(p_want, cardinality(lanes));
    -- What was moved has to be read again: lanes are told with the turn under which they are found.
    exit when round = 3;
    exit when engine.refile(p_classes, p_now, p_since, p_most) = 0;
  end loop;
end $$;

-- The lanes among which a claim of p_want shares out what there is: pick_v1, which has all else explained. Where turns that
-- stand behind their fair keys leave too few to be served before the horizon, these are moved on first (refile_v1).
create or replace function sluice.choose_v1(
  p_classes bigint[], p_want integer, p_now bigint, p_since bigint, p_most integer,
  out lanes bigint[], out stored bigint[], out starts bigint[], out horizon bigint, out cut boolean)
language plpgsql as $$
begin
  for round in 1 .. 3 loop
    select array_agg(p.lane), array_agg(p.stored), array_agg(p.vstart), min(p.horizon), coalesce(bool_or(p.cut), false)
    into lanes, stored, starts, horizon, cut from sluice.pick_v1(p_classes, p_now, p_since, p_most) p;
    exit when horizon is null or (select count(*) from unnest(starts) s where s <= choose_v1.horizon) >= least(p_want, cardinality(lanes));
    -- What was moved has to be read again: lanes are told with the turn under which they are found.
    exit when round = 3;
    exit when sluice.refile_v1(p_classes, p_now, p_since, p_most) = 0;
  end loop;
end $$;

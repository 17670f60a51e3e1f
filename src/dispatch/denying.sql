-- The bucket before which each lane is to wait, as a position in p_buckets (0: none): the one that denied it (p_blocked); for a lane that
-- was denied by one and another in turn, the first of all that lack room, as reserve_units.sql wants it.
create or replace function engine.denying(p_lanes sluice.lane[], p_blocked integer[], p_buckets bigint[], p_units bigint[], p_places bigint[])
returns integer[] language plpgsql immutable as $$
declare
  v_first integer;
begin
  for i in 1 .. cardinality(p_lanes) loop
    continue when p_blocked[i] = 0 or p_lanes[i].denied < 1 or p_lanes[i].costed;
    v_first := (select min(b) from unnest(p_buckets, p_units, p_places) with ordinality u (id, units, places, b)
                where u.id = any (p_lanes[i].buckets) and (u.units < 1 or u.places < 1));
    p_blocked[i] := coalesce(v_first, p_blocked[i]);
  end loop;
  return p_blocked;
end $$;

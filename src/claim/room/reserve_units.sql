-- Reserves units for the lanes in front of these lists, where other lanes would otherwise take for ever what they wait
-- for. A lane gets a reservation in two cases. Its next job needs more than one unit of the bucket that it waits for,
-- and nothing else is in its way. Or another bucket denied it twice while the bucket of its list had room: then it gets
-- units of its other buckets. Such a lane waits for the slowest bucket that lacks room, and units are reserved in the
-- buckets that are slower still: this is one order for all lanes, so no two lanes wait for each other.
-- Call under the locks of the classes and of the buckets. Returns p_lists with what the next job of each front lane
-- needs.
-- p_lanes: the lanes that were served or moved; the reservations of those that are no longer in front are deleted
create or replace function engine.reserve_units(p_now bigint, p_lists engine.waiting[], p_lanes sluice.lane[])
returns engine.waiting[]
language plpgsql as $$
declare
  v_list engine.waiting;
  v_lane sluice.lane;
  v_kept bigint[] := '{}';
  v_is boolean := exists (select 1 from sluice.reservation r where r.class in (select l.class from unnest(p_lanes) l));
begin
  if not v_is and not exists (select 1 from unnest(p_lanes) l where l.costed or l.denied >= 1) then
    return p_lists;
  end if;
  for i in 1 .. cardinality(p_lists) loop
    v_list := p_lists[i];
    continue when v_list.front is null;
    select l.* into v_lane from (  -- the one that a claim looks at first
      select * from sluice.lane l where l.class = v_list.class and l.list = v_list.id and l.vstart = v_list.front
      order by l.id limit 64) l order by l.rank, l.id limit 1;
    continue when not v_lane.costed and v_lane.denied < 2;
    v_kept := v_kept || v_lane.id;
    v_list.need := engine.reserve_for_lane(v_lane, p_now);
    p_lists[i] := v_list;
  end loop;
  if v_is then
    delete from sluice.reservation r using (select distinct l.class, l.id from unnest(p_lanes) l) g
    where r.class = g.class and r.lane = g.id and r.lane <> all (v_kept);
  end if;
  return p_lists;
end $$;

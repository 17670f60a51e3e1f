-- What the pool of a definition allows: avail, jobs of one unit that its members have free together; units and places, what
-- the one has that has the most; next, when one of them has p_need units and a place (room). Of a member that was never
-- used all is free. What takers outside of jobs wait for at a member is left out, where it is their turn (left).
-- Call under lock of the members to act on the answer.
create or replace function engine.pool(p_def sluice.limit_def, p_now bigint, p_need bigint, out avail bigint, out units bigint, out places bigint,
  out most bigint, out next bigint, out period bigint, out slack bigint) language plpgsql stable as $$
declare
  v_members bigint[] := array(select sluice.hash64(p_def.name || ':' || m) from unnest(p_def.members) m);
  v_avail bigint[];
  v_units bigint[];
  v_places bigint[];
begin
  select array_agg(case when r.version is null then x.room else r.avail end order by r.ord),
         array_agg(case when r.version is null then x.room else r.units end order by r.ord),
         array_agg(case when r.version is null then 2147483647 else r.places end order by r.ord),
         max(r.most), min(case when r.version is null then p_now else r.next end), greatest(1, min(r.period) / count(*)), min(r.slack)
  into v_avail, v_units, v_places, most, next, period, slack
  from engine.room(v_members, p_now, false, case when p_need > 1 then array_fill(p_need, array[cardinality(v_members)]) end) r
  cross join (select min(u) as room from unnest(p_def.room) u) x;
  if exists (select 1 from sluice.taker t where t.alive_until > p_now) then
    v_avail := engine.left(v_members, v_avail, p_now);
    v_units := engine.left(v_members, v_units, p_now);
    v_places := engine.left(v_members, v_places, p_now, true);
  end if;
  avail := (select sum(a) from unnest(v_avail) a);
  select m.units, m.places into units, places from unnest(v_units, v_places) m (units, places)
  where m.places > 0 order by m.units desc, m.places desc limit 1;
  units := coalesce(units, 0);
  places := coalesce(places, 0);
end $$;

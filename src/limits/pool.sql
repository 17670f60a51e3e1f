-- What the pool of a definition allows: avail, jobs of one unit that its members have free together; units and places, what
-- the one has that has the most; next, when one of them has p_need units and a place (room_v1). Of a member that was never
-- used all is free. Call under lock_v1 of the members to act on the answer.
create or replace function sluice.pool_v1(p_def sluice.limit_def, p_now bigint, p_need bigint, out avail bigint, out units bigint, out places bigint,
  out most bigint, out next bigint, out period bigint, out slack bigint) language plpgsql stable as $$
begin
  with member as materialized (
    select case when r.version is null then 2147483647 else r.places end as places, r.most, r.period, r.slack,
           case when r.version is null then x.room else r.avail end as avail, case when r.version is null then x.room else r.units end as units,
           case when r.version is null then p_now else r.next end as next
    from sluice.room_v1(array(select sluice.hash64(p_def.name || ':' || m) from unnest(p_def.members) m), p_now, false,
                        case when p_need > 1 then array_fill(p_need, array[cardinality(p_def.members)]) end) r
    cross join (select min(u) as room from unnest(p_def.room) u) x
  )
  select sum(m.avail), max(b.units), max(b.places), max(m.most), min(m.next), greatest(1, min(m.period) / count(*)), min(m.slack)
  into avail, units, places, most, next, period, slack
  from member m left join (select o.units, o.places from member o where o.places > 0 order by o.units desc, o.places desc limit 1) b on true;
  units := coalesce(units, 0);
  places := coalesce(places, 0);
end $$;

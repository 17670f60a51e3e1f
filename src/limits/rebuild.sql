-- A bucket's state under a changed definition, as of its newest row (p_at): as if the new rules had been in force for as
-- long as they look back (span), from what was granted and kept. As in limits/decide.ts; the largest sum over all
-- moments is what a level that drains would owe. What runs goes on to run.
create or replace function sluice.rebuild_v1(p_bucket bigint, p_version integer, p_debt bigint[], p_at bigint, p_def sluice.limit_def)
returns sluice.state language plpgsql stable as $$
declare
  v_from bigint := p_at - (select max(s) from unnest(p_def.span) s);
  v_running bigint;
  v_ats bigint[];
  v_units bigint[];
  v_state sluice.state;
begin
  select max(u.debt) into v_running from sluice.limit_def d, unnest(p_debt, d.drain) u (debt, drain)
  where d.name = p_def.name and d.version = p_version and u.drain = 0;
  with row as (
    select * from sluice.ledger l where l.bucket = p_bucket and l.at > v_from and l.units <> 0
  ), back as (
    select claim, sum(units) as units from row where units < 0 group by claim
  )
  select coalesce(array_agg(g.at order by g.at desc, g.n desc), '{}'),
         coalesce(array_agg(g.units + coalesce(b.units, 0) order by g.at desc, g.n desc), '{}')
  into v_ats, v_units from row g left join back b on b.claim = g.claim where g.units > 0;
  v_state.debt := array(
    select case
      when u.drain = 0 then coalesce(v_running, 0)
      when u.slot > 0 then 0 -- room_v1 adds up its parts
      else (select least(coalesce(greatest(0, max(s.owed)), 0), 2305843009213693952) from (
              select sum(g.units) over (order by g.o) * u.weight - u.drain::numeric * (p_at - g.at) as owed
              from unnest(v_ats, v_units) with ordinality g (at, units, o) where g.at > p_at - u.span) s) end::bigint
    from unnest(p_def.drain, p_def.weight, p_def.slot, p_def.span) with ordinality u (drain, weight, slot, span, i) order by i);
  if (select max(s) from unnest(p_def.slot) s) > 0 then
    v_state.slots := (
      select array_agg(array(
        select coalesce(sum(g.units), 0)::integer from generate_series(0, 60) k
        left join unnest(v_ats, v_units) g (at, units) on p_at / nullif(u.slot, 0) - g.at / nullif(u.slot, 0) = k
        group by k order by k) order by u.i)
      from unnest(p_def.slot) with ordinality u (slot, i));
  end if;
  return v_state;
end $$;

-- Returns what a rate or a pace of a changed definition owes at the time of a bucket's newest row (p_row). For each
-- moment of the last three spans it takes what was granted since then, less what has drained since then, and returns
-- the largest of these sums. limits/proof.ts checks a rate no further back than three spans. A sum over more than one
-- span may include what the definition of the newest grant allowed and the new one does not: that is subtracted. As
-- `owedByRate` in test/limits/rebuild.ts, in the same steps of floating-point arithmetic.
-- p_def: the definition in force.
-- p_rule: place of the rate, or the pace, in it.
create or replace function engine.rebuild_rate_debt(p_row sluice.ledger, p_def sluice.limit_def, p_rule integer)
returns bigint language plpgsql stable as $$
declare
  v_span bigint := p_def.span[p_rule];
  v_room float8 := case p_def.kind[p_rule] when 'pace'
    then 1 + p_def.drain[p_rule]::float8 * p_def.part_us[p_rule] / p_def.weight[p_rule] else p_def.capacity[p_rule] end;
  v_drain bigint := p_def.drain[p_rule];
  v_weight bigint := p_def.weight[p_rule];
  -- A line for each rule of the newest grant's definition: it allows at least capacity + time * drain / weight. Over
  -- more than its window a rate with a pace allows what the pace does.
  v_rooms float8[];
  v_drains float8[];
  v_weights float8[];
begin
  select array_agg(case u.kind when 'window' then 0 when 'pace' then 1 + u.drain::float8 * u.part_us / u.weight
                   else u.capacity end),
         array_agg(case u.kind when 'window' then u.capacity when 'quota' then 0 else u.drain end),
         array_agg(case u.kind when 'window' then 60 * u.part_us else u.weight end)
  into v_rooms, v_drains, v_weights
  from sluice.limit_def d, unnest(d.kind, d.capacity, d.drain, d.weight, d.part_us, d.kind[2:])
    u (kind, capacity, drain, weight, part_us, following)
  where d.name = p_def.name and u.kind <> 'concurrency' and (u.kind, u.following) is distinct from ('rate', 'pace')
    and d.version = (
    select l.version from sluice.ledger l
    where l.bucket = p_row.bucket and l.at > p_row.at - 3 * v_span and l.units > 0
    order by l.at desc, l.n desc limit 1);
  return (
    select least(greatest(0, coalesce(max(case when s.age < v_span then s.owed else s.owed - least(9e18, greatest(0,
             floor(((f.capacity + t.us * f.drain / f.weight) * (1 - 1e-12::float8)
                    - v_room - t.us * v_drain / v_weight) * v_weight)))::bigint end), 0)), 2305843009213693952)
    from (select sum(g.units) over (order by g.at desc, g.n desc) * v_weight
                 - v_drain::numeric * (p_row.at - g.at) as owed, p_row.at - g.at as age
          from engine.kept_grants(p_row.bucket, p_row.at - 3 * v_span) g) s
    -- The rule that allows least decides, and so does the end of the three spans if it leaves less than now.
    cross join unnest(coalesce(v_rooms, '{Infinity}'), coalesce(v_drains, '{0}'), coalesce(v_weights, '{1}'))
      f (capacity, drain, weight)
    cross join (values (0), (1)) e (is_end)
    cross join lateral (select (case e.is_end when 1 then 3 * v_span else s.age end)::float8 as us) t
    where s.owed > 0);
end $$;

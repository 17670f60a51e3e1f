-- Adds to what `engine.count_earlier_takers` counted for a taker those of its own statement that were decided before it
-- and wait in line now.
-- p_lines: their ids in the line.
create or replace function engine.add_earlier_takers(
  p_taker engine.taker, p_lines uuid[], p_buckets bigint[], p_now bigint) returns engine.taker
language plpgsql as $$
begin
  if p_lines = '{}' then return p_taker; end if;
  select array_agg(p_taker.units[u.o] + w.cost order by u.o), array_agg(p_taker.earlier[u.o] + w.takers order by u.o)
    into p_taker.units, p_taker.earlier
  from unnest(p_buckets) with ordinality u (b, o) cross join lateral (
    select coalesce(sum(t.cost), 0)::bigint as cost, count(*) as takers
    from unnest(p_lines) l cross join lateral (
      -- By the primary key: the limit keeps the planner from a scan of the whole line.
      select t.cost from sluice.taker t
      where t.id = l and t.bucket = u.b and t.alive_until > p_now and t.reserves limit 1) t) w;
  return p_taker;
end $$;

-- Debt of one rule under a changed definition. Debt is the most that was granted in any span, less what drains in it; so
-- a rule is owed no more than any old rule that drains no faster was owed, in units. When all old rules drained faster,
-- the most that any of them was owed is kept. Rounded up, so nothing held is forgotten; as in limits/decide.ts.
create or replace function sluice.redebt_v1(p_name text, p_version integer, p_debt bigint[], p_drain bigint, p_weight bigint)
returns bigint language sql stable as $$
  select least(coalesce(min(o.debt) filter (where o.slower), max(o.debt)), 2305843009213693952)::bigint
  from (
    select div(u.debt::numeric * p_weight + u.weight - 1, u.weight) as debt,
           u.drain::numeric * p_weight <= p_drain::numeric * u.weight as slower
    from sluice.limit_def d, unnest(p_debt, d.drain, d.weight) u (debt, drain, weight)
    where d.name = p_name and d.version = p_version) o
$$;

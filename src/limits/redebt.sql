-- Debt under a changed definition: the most units that any old rule still holds, in the new rule's weight.
-- Never less than what was granted, so a change of limits forgets nothing.
create or replace function sluice.redebt_v1(p_name text, p_version integer, p_debt bigint[], p_weight bigint)
returns bigint language sql stable as $$
  select max((u.debt + u.weight - 1) / u.weight) * p_weight
  from sluice.limit_def d, unnest(p_debt, d.weight) u (debt, weight)
  where d.name = p_name and d.version = p_version
$$;

-- Returns what a rate owes that has a pace: while the pace has room for some units, at most what leaves room for as
-- many.
-- p_def, p_i: the definition, and the number of the rate in it; its pace is the next rule.
-- p_debt: what the rules owe, as of now.
create or replace function engine.ease_debt(p_def sluice.limit_def, p_i integer, p_debt bigint[]) returns bigint
language plpgsql immutable as $$
declare
  v_weight constant bigint := p_def.weight[p_i + 1];
  v_free constant bigint := (v_weight + p_def.drain[p_i + 1] * p_def.part_us[p_i + 1] - p_debt[p_i + 1]) / v_weight;
begin
  if v_free < 1 then return p_debt[p_i]; end if;
  return least(p_debt[p_i], (p_def.capacity[p_i] - v_free) * p_def.weight[p_i]);
end $$;

-- Returns after how many microseconds a pace has room for p_need units; null: never for so many at once.
-- p_def, p_i, p_debt, p_need, p_exact: as in engine.rule_free_at.
create or replace function engine.pace_free_in(
  p_def sluice.limit_def, p_i integer, p_debt bigint[], p_need bigint, p_exact boolean) returns numeric
language plpgsql immutable as $$
declare
  v_weight constant bigint := p_def.weight[p_i];
  v_drain constant bigint := p_def.drain[p_i];
  v_full constant bigint := v_weight + v_drain * p_def.slot[p_i];
begin
  if p_need > v_full / v_weight and not p_exact then return null; end if;
  return greatest(0, div(p_debt[p_i] + p_need::numeric * v_weight - v_full + v_drain - 1, v_drain));
end $$;

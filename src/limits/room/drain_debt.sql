-- Returns what is left of a debt after p_us microseconds, in each of which p_drain drains. It is SQL, because the
-- planner puts the expression in place of the call.
create or replace function engine.drain_debt(p_debt bigint, p_drain bigint, p_us bigint) returns bigint
language sql immutable as $$
  select case when p_drain = 0 then p_debt when p_us > p_debt / p_drain then 0 else p_debt - p_drain * p_us end
$$;

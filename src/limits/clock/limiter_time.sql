-- Returns what the limiter's clock shows now, in microseconds. It is SQL, because the planner puts the expression in
-- place of the call.
-- p_clock_offset, p_watched: of the row of sluice.epoch.
create or replace function engine.limiter_time(p_clock_offset bigint, p_watched boolean, p_cap bigint) returns bigint
language sql volatile as $$
  select least((extract(epoch from sluice.now()) * 1000000)::bigint + p_clock_offset,
               case when p_watched then p_cap end)
$$;

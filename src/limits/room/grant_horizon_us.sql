-- Returns how far ahead of the clock a grant may be decided, in microseconds: the instant from which it may be used is
-- at most so much later than the decision.
create or replace function engine.grant_horizon_us() returns bigint language sql immutable as $$
  select 250000::bigint
$$;

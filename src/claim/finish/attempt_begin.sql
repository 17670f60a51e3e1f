-- Returns when an attempt began, by the store's clock, but never later than now.
-- p_dispatched: when its claim was decided
-- p_began_us: how long after that the attempt began, by the worker's clock, in microseconds; null: not known
create or replace function engine.attempt_begin(p_dispatched timestamptz, p_began_us bigint, p_now timestamptz)
returns timestamptz language sql stable as
  $$ select least(p_dispatched + make_interval(secs => greatest(0, coalesce(p_began_us, 0)) / 1e6), p_now) $$;

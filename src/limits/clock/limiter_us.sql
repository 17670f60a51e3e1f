-- The clock of all limits, in microseconds: the store's, and what that has stepped taken back, so that a window is
-- neither opened nor stalled by a step. p_cap: the latest time that the caller's monotonic clock allows it to show
-- (null: unknown).
create or replace function engine.limiter_us(p_cap bigint default null) returns bigint language plpgsql as $$
begin
  return (select case when e.watched then least(sluice.now_us() + e.ahead_us, p_cap) else sluice.now_us() + e.ahead_us end from sluice.epoch e);
end $$;

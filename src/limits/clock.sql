-- The clock of all limits, in microseconds: the store's, and what that has stepped taken back, so that a window is neither
-- opened nor stalled by a step. p_cap: the latest time that the caller's monotonic clock allows it to show (null: unknown).
create or replace function engine.limiter_us(p_cap bigint default null) returns bigint language plpgsql as $$
declare
  v_epoch sluice.epoch;
  v_now bigint;
begin
  select * into v_epoch from sluice.epoch where one;
  v_now := sluice.now_us() + v_epoch.ahead_us;
  return case when v_epoch.watched then least(v_now, p_cap) else v_now end;
end $$;

-- Returns the clock of all limits, in microseconds: the store's clock with its steps taken out, so that a step neither
-- opens nor stalls a window.
create or replace function engine.limiter_now_us(p_cap bigint default null) returns bigint language plpgsql as $$
begin
  return (select engine.limiter_time(e.clock_offset_us, e.watched, p_cap) from sluice.epoch e);
end $$;

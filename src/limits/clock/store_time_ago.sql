-- Returns what the store's clock showed p_ms milliseconds ago, or an earlier time if the clock was set back since:
-- every time that was written later than p_ms ago is later than the result. Ages are measured by the limiter's clock,
-- which has no steps.
create or replace function engine.store_time_ago(p_ms bigint, p_cap bigint) returns timestamptz language plpgsql as $$
declare
  v_at bigint := engine.limiter_now_us(p_cap) - p_ms * 1000;
begin
  return to_timestamp(least(v_at - engine.clock_offset_at(v_at),
    (select min(s.at - s.clock_offset_us) from sluice.step s where s.at > v_at)) / 1e6);
end $$;

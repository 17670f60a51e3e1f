-- Returns a time of the store's clock that it showed p_ms ago, such that all that is written later has a later time.
-- Ages are measured by the limiter's clock, which goes on evenly when the store's clock steps.
-- p_ms: age in milliseconds.
create or replace function engine.store_time_ago(p_ms bigint, p_cap bigint) returns timestamptz language plpgsql as $$
declare
  v_at bigint := engine.limiter_now_us(p_cap) - p_ms * 1000;
begin
  return to_timestamp(least(v_at - engine.clock_lead_at(v_at),
    (select min(s.at - s.clock_lead_us) from sluice.step s where s.at > v_at)) / 1e6);
end $$;

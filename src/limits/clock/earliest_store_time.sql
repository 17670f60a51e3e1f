-- Returns the earliest time that the store's clock would show now if it had kept one of the settings that it had within
-- the last p_ms milliseconds (a step changes its setting). An instant that was written within p_ms, as the store's
-- clock showed it then, is over when it is earlier than this time.
-- p_ms: in milliseconds.
create or replace function engine.earliest_store_time(p_ms bigint, p_cap bigint)
returns timestamptz language plpgsql as $$
declare
  v_now bigint := engine.limiter_now_us(p_cap);
  v_since bigint := v_now - p_ms * 1000;
begin
  return to_timestamp((v_now - greatest(engine.clock_lead_at(v_since),
    (select max(s.clock_lead_us) from sluice.step s where s.at > v_since))) / 1e6);
end $$;

-- Returns a time of the store's clock before which instants are surely over, whatever steps the clock made since they
-- were written. Each step changes the clock's setting. For each setting of the last p_ms milliseconds this computes
-- what the clock would show now, and returns the earliest of these times.
-- p_ms: the instants were written within so many milliseconds.
create or replace function engine.earliest_store_time(p_ms bigint, p_cap bigint)
returns timestamptz language plpgsql as $$
declare
  v_now bigint := engine.limiter_now_us(p_cap);
  v_since bigint := v_now - p_ms * 1000;
begin
  return to_timestamp((v_now - greatest(engine.clock_offset_at(v_since),
    (select max(s.clock_offset_us) from sluice.step s where s.at > v_since))) / 1e6);
end $$;

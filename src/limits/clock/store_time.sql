-- Returns what the store's clock shows when the limiter's clock shows p_us. Times of jobs are those of the store's
-- clock, times in the ledger and in lists those of the limiter's clock.
create or replace function engine.store_time(p_us bigint) returns timestamptz language plpgsql stable as $$
begin
  return to_timestamp((p_us - (select clock_offset_us from sluice.epoch)) / 1e6);
end $$;

-- What the store's clock shows when the limiter's shows p_us: times of jobs are the store's, times in ledger and lists
-- the limiter's.
create or replace function engine.wall(p_us bigint) returns timestamptz language plpgsql stable as $$
begin
  return to_timestamp((p_us - (select ahead_us from sluice.epoch)) / 1e6);
end $$;

-- What the store's clock shows, or showed, p_ms ago, so that what is written later than that has a later time: ages are
-- those of the limiter's clock, which goes on evenly when the store's steps. p_cap: as of limiter_us.
create or replace function engine.shown_ago(p_ms bigint, p_cap bigint) returns timestamptz language plpgsql as $$
declare
  v_at bigint := engine.limiter_us(p_cap) - p_ms * 1000;
begin
  return to_timestamp(least(v_at - engine.advance(v_at),
    (select min(s.at - s.ahead_us) from sluice.step s where s.at > v_at)) / 1e6);
end $$;

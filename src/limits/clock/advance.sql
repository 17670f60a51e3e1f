-- How far the limiter's clock was ahead of the store's when it showed p_at, as far back as the ledger tells: calendars
-- go by the store's, which may have stepped since.
create or replace function engine.advance(p_at bigint) returns bigint language plpgsql stable as $$
begin
  return coalesce((select s.ahead_us from sluice.step s where s.at <= p_at order by s.n desc limit 1),
                  (select s.before_us from sluice.step s order by s.n limit 1),
                    (select e.ahead_us from sluice.epoch e limit 1));
end $$;

-- Returns by how many microseconds the limiter's clock was ahead of the store's clock when the limiter's clock showed
-- p_at. Calendars go by the store's clock, which may have stepped since. Before the oldest step that is recorded: what
-- was true just before that step.
create or replace function engine.clock_offset_at(p_at bigint) returns bigint language plpgsql stable as $$
begin
  return coalesce((select s.clock_offset_us from sluice.step s where s.at <= p_at order by s.n desc limit 1),
                  (select s.before_us from sluice.step s order by s.n limit 1),
                    (select e.clock_offset_us from sluice.epoch e limit 1));
end $$;

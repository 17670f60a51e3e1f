-- When so many units are free under a rule that has not so many now: the rule p_i of a definition, its debt, its parts (of a
-- window, as one row) and its periods (of a quota, as one row). 2^53 - 1: not by time;
-- a second from now: the store does not understand the calendar.
-- p_ahead: how far the limiter's clock is ahead of the one that calendars go by.
create or replace function engine.fit(
  p_def sluice.limit_def, p_i integer, p_debt bigint, p_slots integer[], p_quota bigint[], p_need bigint, p_now bigint, p_ahead bigint) returns bigint
language plpgsql stable as $$
begin
  return case
    when p_def.slot[p_i] > 0 then engine.freed(p_slots, p_def.slot[p_i], p_now, p_def.room[p_i] - p_need + 1)
    when p_def.drain[p_i] = 0 then 9007199254740991
    when p_def.margin[p_i] > 0 then
      coalesce(p_ahead + engine.reset(p_quota, p_def.spec -> 'rules' -> (p_i - 1) -> 'quota', p_def.margin[p_i], p_def.room[p_i], p_need), p_now + 1000000)
    else p_now + (p_debt - (p_def.room[p_i] - p_need) * p_def.weight[p_i] + p_def.drain[p_i] - 1) / p_def.drain[p_i] end;
end $$;

-- When so many units are free under a rule that has not so many now: the rule p_i of a definition, its debt, and the
-- parts and periods of all rules (ledger). 2^53 - 1: not by time; a second from now: the store does not understand the
-- calendar. Of more than it holds: when they have come, were some taken on the way; for a window or a quota no later
-- than that.
-- p_ahead: how far the limiter's clock is ahead of the one that calendars go by.
create or replace function engine.fit(
  p_def sluice.limit_def, p_i integer, p_debt bigint, p_slots integer[], p_quota bigint[], p_need bigint, p_now bigint,
  p_ahead bigint) returns bigint
language plpgsql stable as $$
declare
  v_room constant bigint := p_def.room[p_i];
begin
  return case p_def.kind[p_i]
    when 'rate' then least(9007199254740991, p_now
      + div(p_debt - (v_room - p_need)::numeric * p_def.weight[p_i] + p_def.drain[p_i] - 1, p_def.drain[p_i]))
    when 'window' then engine.freed(p_slots[p_i:p_i], p_def.slot[p_i], p_now, v_room - p_need + 1)
    when 'quota' then coalesce(p_ahead + engine.reset(p_quota[p_i:p_i],
      p_def.spec -> 'rules' -> (p_i - 1) -> 'quota', p_def.margin[p_i], v_room, least(p_need, v_room)), p_now + 1000000)
    else 9007199254740991 end;
end $$;

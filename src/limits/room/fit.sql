-- When so many units are free under a rule that has not so many now. 2^53 - 1: not by time; a second from now: the
-- store does not understand the calendar. Of more than it holds: when they have come, were some taken on the way; for a
-- window or a quota no later than that.
-- p_def, p_i: the definition, and which of its rules.
-- p_debt: that of the rule.
-- p_slots, p_quota: the parts and periods of all its rules, as seen now (ledger).
-- p_ahead: how far the limiter's clock is ahead of the one that calendars go by.
create or replace function engine.fit(
  p_def sluice.limit_def, p_i integer, p_debt bigint, p_slots integer[], p_quota bigint[], p_need bigint, p_now bigint,
  p_ahead bigint) returns bigint
language plpgsql stable as $$
declare
  v_room constant bigint := p_def.room[p_i];
  v_kept bigint := 0;
begin
  case p_def.kind[p_i]
    when 'rate' then
      return least(9007199254740991, p_now
        + div(p_debt - (v_room - p_need)::numeric * p_def.weight[p_i] + p_def.drain[p_i] - 1, p_def.drain[p_i]));
    when 'window' then
      -- When the newest of the parts is over that must be forgotten for that.
      for k in 1 .. 61 loop
        v_kept := v_kept + p_slots[p_i][k];
        if v_kept > v_room - p_need then return (p_now / p_def.slot[p_i] - k + 62) * p_def.slot[p_i]; end if;
      end loop;
      return p_now;
    when 'quota' then
      -- A period that is full is over only a margin after its end; what counts in the next one counts in this one too.
      p_need := least(p_need, v_room);
      return coalesce(p_ahead + p_def.margin[p_i] + case
        when p_quota[p_i][6] + p_need > v_room then
          (engine.period(p_def.spec -> 'rules' -> (p_i - 1) -> 'quota', p_quota[p_i][3])).ends
        when p_quota[p_i][5] + p_need > v_room then p_quota[p_i][3]
        else p_quota[p_i][2] end, p_now + 1000000);
    else return 9007199254740991;
  end case;
end $$;

-- Returns when p_need units are free under a rule that does not have them now. 2^53 - 1: time alone does not free them.
-- A second from now: the store does not understand the calendar. If p_need is more than the rule holds, others have to
-- take some of the units meanwhile: then a rate returns when so many have become free in total, and a window or a quota
-- a time that is no later than that.
-- p_def, p_i: the definition, and the number of the rule in it.
-- p_debt: debts of all its rules.
-- p_parts, p_quota: parts and periods of all its rules, as of p_now (ledger).
-- p_exact: several waiters need the units together, so a pace may free them one by one.
-- p_clock_offset: by how many microseconds the limiter's clock is ahead of the store's, by which calendars go.
create or replace function engine.rule_free_at(
  p_def sluice.limit_def, p_i integer, p_debt bigint[], p_parts integer[], p_quota bigint[], p_need bigint,
  p_now bigint, p_clock_offset bigint, p_exact boolean) returns bigint
language plpgsql stable as $$
declare
  v_capacity constant bigint := p_def.capacity[p_i];
  v_kept bigint := 0;
  v_full bigint;    -- the most debt of a pace
  v_pace numeric;   -- in how many microseconds the pace has room; null: there is none, or never for so many at once
begin
  case p_def.kind[p_i]
    when 'rate' then
      if p_def.kind[p_i + 1] = 'pace' then
        v_full := p_def.weight[p_i + 1] + p_def.drain[p_i + 1] * p_def.part_us[p_i + 1];
        if p_exact or p_need <= v_full / p_def.weight[p_i + 1] then
          v_pace := greatest(0, div(p_debt[p_i + 1] + p_need::numeric * p_def.weight[p_i + 1] - v_full
            + p_def.drain[p_i + 1] - 1, p_def.drain[p_i + 1])); end if;
      end if;
      return least(9007199254740991, p_now
        + div(p_debt[p_i] - (v_capacity - p_need)::numeric * p_def.weight[p_i] + p_def.drain[p_i] - 1,
              p_def.drain[p_i]), p_now + v_pace);
    when 'window' then
      -- When the newest of the parts that must leave the window has left it.
      for k in 1 .. 61 loop
        v_kept := v_kept + p_parts[p_i][k];
        if v_kept > v_capacity - p_need then return (p_now / p_def.part_us[p_i] - k + 62) * p_def.part_us[p_i]; end if;
      end loop;
      return p_now;
    when 'quota' then
      -- A full period ends for us only a margin after its end; what counts in the next period counts in this one too.
      p_need := least(p_need, v_capacity);
      return coalesce(p_clock_offset + p_def.margin[p_i] + case
        when p_quota[p_i][6] + p_need > v_capacity then
          case when p_def.periods[p_i][1] <= p_quota[p_i][3] then (
            select min(u) from unnest(p_def.periods[p_i:p_i]) u where u > p_quota[p_i][3]) end
        when p_quota[p_i][5] + p_need > v_capacity then p_quota[p_i][3]
        else p_quota[p_i][2] end, p_now + 1000000);
    when 'concurrency' then return 9007199254740991;
  end case;
end $$;

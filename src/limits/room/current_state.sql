-- Returns a bucket's newest ledger row with what its quotas owe now, and with their periods. A quota owes what counts
-- against a grant at p_wall: near an end of its period also the units of the neighbouring period, if they are more.
-- If the store's clock was set back, periods of quotas begin again in which units were granted: what counts in them is
-- read from the ledger (engine.recount_quota_periods), as it is when the row has no periods. The periods are null when
-- the store does not understand a calendar: such a quota is full.
-- p_row, p_def: that row, and its definition.
-- p_wall: the store's clock, in microseconds, by which quotas go.
create or replace function engine.current_state(p_row sluice.ledger, p_def sluice.limit_def, p_wall bigint)
returns sluice.ledger language plpgsql stable as $$
declare
  v_quota bigint[];
  v_shown bigint;  -- the latest time that the store's clock showed before it was set back
begin
  if p_def.margin is null then return p_row; end if;
  v_quota := engine.advance_quota_periods(p_row.quota, p_def, p_wall);
  if p_row.at is not null and v_quota is not null and (p_row.quota is null or exists (select 1 from sluice.step)) then
    v_shown := (select max(s.at - s.before_us) from sluice.step s where s.ahead_us > s.before_us);
    if p_row.quota is null or p_row.at - engine.clock_lead_at(p_row.at) > p_wall or exists (
      select 1 from generate_subscripts(p_def.margin, 1) i
      where p_wall < p_row.quota[i][2]  -- a refund since the step wrote the row, at a time before the step
        or (v_quota[i][2] is distinct from p_row.quota[i][2]
          -- This period begins again, or the one before it does, in which grants of now count, too.
          and (v_quota[i][2] <= v_shown + p_def.margin[i]
            or (p_wall < v_quota[i][2] + p_def.margin[i] and v_quota[i][1] <= v_shown + p_def.margin[i]))))
    then v_quota := engine.recount_quota_periods(p_row.bucket, p_wall, p_def); end if;
  end if;
  p_row.debt := coalesce(p_row.debt, array_fill(0::bigint, array[cardinality(p_def.kind)]));
  for i in 1 .. cardinality(p_def.kind) loop
    continue when p_def.kind[i] <> 'quota';
    p_row.debt[i] := coalesce(greatest(v_quota[i][5], case
      when p_wall < v_quota[i][2] + p_def.margin[i] then v_quota[i][4]
      when p_wall >= v_quota[i][3] - p_def.margin[i] then v_quota[i][6] end), p_def.room[i]);
  end loop;
  p_row.quota := v_quota;
  return p_row;
end $$;

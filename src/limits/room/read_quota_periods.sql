-- Returns the periods of a bucket's quotas when the store's clock shows p_wall, from the bucket's newest row
-- (engine.advance_quota_periods). If that clock was set back, periods begin again in which units were granted: what
-- counts in them is read from the ledger (engine.recount_quota_periods), as it is when the row has no periods. Null
-- when the store does not understand a calendar: engine.bucket_room treats such a quota as full.
-- p_row, p_def: the bucket's newest ledger row; the definition in force.
-- p_wall: the store's clock, in microseconds.
create or replace function engine.read_quota_periods(p_row sluice.ledger, p_def sluice.limit_def, p_wall bigint)
returns bigint[]
language plpgsql stable as $$
declare
  v_quota bigint[] := engine.advance_quota_periods(p_row.quota, p_def, p_wall);
  v_shown bigint;  -- the latest time that the store's clock showed before it was set back
begin
  if p_row.at is null or v_quota is null then return v_quota; end if;
  if p_row.quota is null then return engine.recount_quota_periods(p_row.bucket, p_wall, p_def); end if;
  if not exists (select 1 from sluice.step) then return v_quota; end if;
  v_shown := (select max(s.at - s.before_us) from sluice.step s where s.ahead_us > s.before_us);
  if p_row.at - engine.clock_lead_at(p_row.at) <= p_wall and not exists (
    select 1 from generate_subscripts(p_def.margin, 1) i
    where p_wall < p_row.quota[i][2]  -- a refund since the step wrote the row, at a time before the step
      or (v_quota[i][2] is distinct from p_row.quota[i][2]
        -- This period begins again, or the one before it does, in which grants of now count, too.
        and (v_quota[i][2] <= v_shown + p_def.margin[i]
          or (p_wall < v_quota[i][2] + p_def.margin[i] and v_quota[i][1] <= v_shown + p_def.margin[i])))
  ) then return v_quota; end if;
  return engine.recount_quota_periods(p_row.bucket, p_wall, p_def);
end $$;

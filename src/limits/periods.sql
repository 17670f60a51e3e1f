-- The periods of a bucket's quotas when the store's clock shows p_wall (rolled_v1), from its newest row. Where that clock was set
-- back, periods begin again that units were granted in: what counts in them is looked up in the ledger.
create or replace function sluice.periods_v1(p_row sluice.ledger, p_def sluice.limit_def, p_wall bigint) returns bigint[] language plpgsql stable as $$
declare
  v_quota bigint[] := sluice.rolled_v1(p_row.quota, p_def.margin, p_def.spec, p_wall);
  v_shown bigint;  -- the latest that it showed before it was set back
begin
  if p_row.at is null or not exists (select 1 from sluice.step) then return v_quota; end if;
  v_shown := (select max(s.at - s.before_us) from sluice.step s where s.ahead_us > s.before_us);
  if p_wall >= v_shown + (select max(m) from unnest(p_def.margin) m) or v_shown is null then return v_quota; end if;
  if p_row.at - sluice.advance_v1(p_row.at) <= p_wall and v_quota[:][2:2] = p_row.quota[:][2:2] then return v_quota; end if;
  return sluice.respent_v1(p_row.bucket, p_wall, p_def);
end $$;

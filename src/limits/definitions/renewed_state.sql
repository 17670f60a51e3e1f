-- Returns the state of a bucket as it has to be written before a claim can use it: under the definition in force, with
-- a calendar that reaches p_wall, and with periods of quotas that are counted from the ledger where a claim cannot
-- compute them (engine.advance_quota_periods). If the ledger is too long to rebuild the state within a statement
-- (engine.is_ledger_too_long), the row stays under its older definition.
-- p_row: the newest ledger row; null: there is none.
-- p_def: the definition in force.
-- p_wall: what the store's clock shows, in microseconds.
create or replace function engine.renewed_state(p_bucket bigint, p_row sluice.ledger, p_def sluice.limit_def,
  p_wall bigint) returns engine.state language plpgsql stable as $$
begin
  if p_row.version <> p_def.version then
    if engine.is_ledger_too_long(p_row, p_def) then return (p_bucket, p_row, p_def); end if;
    p_row := engine.rebuild_bucket_state(p_row, p_def);
  end if;
  p_def.periods := engine.calendar_periods(p_def, p_wall);
  if p_def.margin is not null and engine.advance_quota_periods(p_row, p_def, p_wall) is null then
    p_row.quota := engine.recount_quota_periods(p_bucket, p_wall, p_def);
    p_row.at := null;  -- no earlier step of the clock matters any more
  end if;
  return (p_bucket, p_row, p_def);
end $$;

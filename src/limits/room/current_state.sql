-- Returns the state of a bucket under the definition in force, from its newest ledger row.
-- p_row, p_def: that row, and the definition.
-- p_rebuild: the row is of another version of the definition, so the state is computed from earlier rows.
-- p_wall: the store's clock, in microseconds, by which quotas go.
create or replace function engine.current_state(
  p_row sluice.ledger, p_def sluice.limit_def, p_rebuild boolean, p_wall bigint)
returns engine.state language plpgsql stable as $$
begin
  if p_rebuild then
    select r.debt, r.slots, r.quota into p_row.debt, p_row.slots, p_row.quota
    from engine.rebuild_bucket_state(p_row, p_def) r;
  end if;
  return (p_row.debt, p_row.slots,
    case when p_def.margin is not null then engine.read_quota_periods(p_row, p_def, p_wall) end)::engine.state;
end $$;

-- Returns how many units count against a grant at p_at under a quota: near an end of its period also those of the
-- neighbouring period, if they are more.
-- p_row: the rule's row of ledger.quota, as of p_at.
-- p_margin, p_at: in microseconds, of the store's clock.
create or replace function engine.quota_owed(p_row bigint[], p_margin bigint, p_at bigint) returns bigint
language plpgsql immutable as $$
begin
  return case when p_at < p_row[1][2] + p_margin then greatest(p_row[1][5], p_row[1][4])
              when p_at < p_row[1][3] - p_margin then p_row[1][5] else greatest(p_row[1][5], p_row[1][6]) end;
end $$;

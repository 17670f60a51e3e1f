-- What a grant at p_at has to fit on top of, under a quota: near an end of its period, what counts in the neighbour
-- too.
-- p_row: the rule's row of ledger.quota, as seen at p_at.
create or replace function engine.owed(p_row bigint[], p_margin bigint, p_at bigint) returns bigint
language plpgsql immutable as $$
begin
  return case when p_at < p_row[1][2] + p_margin then greatest(p_row[1][5], p_row[1][4])
              when p_at < p_row[1][3] - p_margin then p_row[1][5] else greatest(p_row[1][5], p_row[1][6]) end;
end $$;

-- When p_need units fit under a quota, of those that do not fit now: a period that is full is over only a margin after
-- its end. p_row: the rule's row of ledger.quota, as seen now. p_quota: its calendar. What counts in the next period
-- counts in this one too.
create or replace function engine.reset(p_row bigint[], p_quota jsonb, p_margin bigint, p_room bigint, p_need bigint) returns bigint
language plpgsql stable as $$
begin
  if p_row[1][6] + p_need > p_room then return (engine.period(p_quota, p_row[1][3])).ends + p_margin; end if;
  return p_margin + case when p_row[1][5] + p_need > p_room then p_row[1][3] else p_row[1][2] end;
end $$;

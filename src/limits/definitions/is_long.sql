-- Whether a bucket that has a new definition (p_def) wrote so many rows, within what that looks back on, that no claim
-- has the time to make its state anew: its newest row (p_row) is so many ahead of the oldest of them. It is not where
-- the new definition counts who runs and one since that row did not: define has just counted them.
create or replace function engine.is_long(p_row sluice.ledger, p_def sluice.limit_def) returns boolean
language plpgsql stable as $$
declare
  v_most constant bigint := 20000;
begin
  return coalesce(p_row.n - v_most > (
      select l.n from sluice.ledger l
        where l.bucket = p_row.bucket and l.at > p_row.at - (select max(s) from unnest(p_def.span) s)
      order by l.at, l.n limit 1), false)
    and not ('concurrency' = any (p_def.kind) and exists (
      select 1 from sluice.limit_def d
      where d.name = p_def.name and d.version >= p_row.version and 'concurrency' <> all (d.kind)));
end $$;

-- Returns whether a bucket with a new definition (p_def) has written so many rows (over 20,000) within what the changed
-- rules look back on that no claim has the time to rebuild its state. Compares the number of its newest row
-- (p_row) with that of the oldest row within that time. False where the new definition has a concurrency and one since
-- p_row had none: then a claim rebuilds it all the same, because engine.define_limit has just counted the running jobs.
create or replace function engine.is_ledger_too_long(p_row sluice.ledger, p_def sluice.limit_def) returns boolean
language plpgsql stable as $$
declare
  v_most constant bigint := 20000;
begin
  return coalesce(p_row.n - v_most > (
      select l.n from sluice.ledger l
        where l.bucket = p_row.bucket and l.at > p_row.at - (
          select max(case u.kind when 'rate' then 3 else 1 end * u.span)
          from unnest(p_def.kind, p_def.span, engine.find_kept_rules(p_def, p_row.version)) u (kind, span, kept)
          where u.kept is null)
      order by l.at, l.n limit 1), false)
    and not ('concurrency' = any (p_def.kind) and exists (
      select 1 from sluice.limit_def d
      where d.name = p_def.name and d.key in ('', p_def.key) and d.version >= p_row.version
      and 'concurrency' <> all (d.kind)));
end $$;

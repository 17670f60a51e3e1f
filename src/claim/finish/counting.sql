-- The limits whose running jobs are counted. Holds off new definitions until the transaction ends: one that begins to
-- count, counts who runs, and must not count those who end just then. Take it before any job's row, after claims' rows.
create or replace function engine.counting() returns text[] language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(1397511523, -7);
  return array(
    select distinct l.name from sluice.limit_def l where 'concurrency' = any (l.kind) and 'concurrency' = any ((
      select d.kind from sluice.limit_def d where d.name = l.name order by d.version desc limit 1)::text[]));
end $$;

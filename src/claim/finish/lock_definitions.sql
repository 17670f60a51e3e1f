-- Returns the limits that count running jobs, if only of one key, and holds off new definitions until the transaction
-- ends. A definition that begins to count them must not count attempts that end at the same moment. Call it before
-- locking any job's row, and after locking claims' rows.
create or replace function engine.lock_definitions() returns text[] language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(1397511523, -7);  -- lock: definitions
  return array(
    select n.name from (select distinct l.name from sluice.limit_def l where 'concurrency' = any (l.kind)) n
    where exists (
      select 1 from sluice.limit_def l where l.name = n.name and 'concurrency' = any (l.kind) and not exists (
        select 1 from sluice.limit_def d where d.name = l.name and d.key = l.key and d.version > l.version)));
end $$;

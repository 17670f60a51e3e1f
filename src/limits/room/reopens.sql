-- When a limit has room again that had none since p_closed, for the store lacks what it granted before: when all of
-- that is out of what its rules look back on, at most an hour later. What a longer one has granted is what the ledger
-- still tells.
create or replace function engine.reopens(p_closed bigint, p_kind text[], p_span bigint[]) returns bigint
language plpgsql immutable as $$
begin
  return p_closed + least(3600000000, greatest((select max(s) from unnest(p_span) s),
    -- Places that a process holds outside of jobs: so long it may believe in them.
    case when 'concurrency' = any (p_kind) then 15000000 else 0 end));
end $$;

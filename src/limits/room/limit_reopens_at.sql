-- Returns when a limit has room again that was closed at p_closed, because the store lacks grants from before that
-- time. It has room when its rules no longer look back on those grants, and at most an hour later. A limit that looks
-- back for longer then decides by the grants that the ledger still has.
-- p_closed: time of the limiter's clock at which it was closed, in microseconds.
-- p_kind, p_span: kind of each rule, and how far back it looks, in microseconds.
create or replace function engine.limit_reopens_at(p_closed bigint, p_kind text[], p_span bigint[]) returns bigint
language plpgsql immutable as $$
begin
  return p_closed + least(3600000000, greatest((select max(s) from unnest(p_span) s),
    -- For 15 s a process may believe that it still holds places outside of jobs.
    case when 'concurrency' = any (p_kind) then 15000000 else 0 end));
end $$;

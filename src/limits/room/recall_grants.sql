-- Notifies workers that what allowed jobs of these buckets has ended: jobs that wait for their instant go back
-- (claim/ahead.ts). A job of which the notification comes too late starts as one that was claimed just before.
-- p_buckets: their ids; of more than 300 all jobs go back; null: those of the limit.
-- p_limit: a limit, if p_buckets is null; null: all jobs.
create or replace function engine.recall_grants(p_buckets bigint[], p_limit text default null) returns void
language plpgsql as $$
begin
  perform pg_notify('sluice.recall', case
    when cardinality(p_buckets) > 300 then '*'
    else coalesce(array_to_string(p_buckets, ','), '@' || p_limit, '*') end);
end $$;

-- Reads the least and the greatest id of the finished jobs that were last claimed between two times; null: there are
-- none. An index of block ranges by these times answers it. The ids are compared as texts, because PostgreSQL before 18
-- has no least uuid, and because it would look for the least one along the primary key, job by job.
-- $1 done or failed, $2 since, $3 until
select min(d.id::text collate "C") as first, max(d.id::text collate "C") as last from (
  select id from sluice.done where $1 = 'done' and dispatched_at >= $2::timestamptz and dispatched_at < $3::timestamptz
  union all
  select id from sluice.failed
  where $1 = 'failed' and dispatched_at >= $2::timestamptz and dispatched_at < $3::timestamptz) d

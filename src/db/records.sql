-- What the functions of this release hand to each other. They stand beside those, not beside the tables: a release may change them.

-- What a claim found in one lane: rows seen, rows taken, the last seq seen, rows that had expired, the rank (but for
-- priority) of the last job seen, and the units of the jobs taken for each of the lane's buckets (null: one for each job).
create type engine.move as (lane bigint, seen integer, taken integer, last bigint, late integer, head integer, costs bigint[]);

-- What a bucket has used, as rebuild.sql makes it anew.
create type engine.state as (debt bigint[], slots integer[], quota bigint[]);

-- What has arrived for a class: its lanes, and of each the first seq and how many jobs (fresh.sql).
create type engine.fresh as (lanes bigint[], bounds bigint[], counts bigint[], future boolean);

-- What a bucket allows, as room.sql says it: a claim charges what it has decided by.
create type engine.room as (
  ord integer, bucket bigint, n bigint, now_at bigint, debt bigint[], slots integer[], quota bigint[], version integer, drain bigint[],
  weight bigint[], slot bigint[], margin bigint[], hold bigint, avail bigint, next bigint, period bigint, slack bigint, stale boolean,
  units bigint, places bigint, most bigint, life bigint, wall bigint);

-- How a job ends, for append_history: the job as it was, and what its record says instead. started_at: of the last attempt.
create type engine.ending as (
  job sluice.job, state text, reason text, attempt integer, failed integer, ambiguous boolean, started_at timestamptz, error jsonb);

-- What the functions of this module hand to each other. The types stand beside the functions, not beside the tables, because a
-- release may change them.

-- How a job ends, for append_history: the job as it was, and what its record says instead. started_at: of the last
-- attempt.
create type engine.ending as (
  job sluice.job, state text, reason text, attempt integer, failed integer, ambiguous boolean, started_at timestamptz,
    error jsonb);

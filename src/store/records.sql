-- Composite types that the functions of this module pass to each other. They are in the schema of the functions, not of
-- the tables, because a release may change them.

-- How a job ends, for engine.append_history: the job as it was, and the new values of its record. started_at: the start
-- of the last attempt. attempts, notes: as in the table.
create type engine.ending as (
  job sluice.job, state text, reason text, attempt integer, failed integer, ambiguous boolean, started_at timestamptz,
    error jsonb, attempts json[], notes json);

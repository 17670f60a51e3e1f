-- The jobs of a claim's row: its first half names their lanes, its second half their places, which is how the index on
-- (lane, seq) finds them again without reading what else waits.
create or replace function sluice.held_v1(p_jobs bigint[]) returns table (lane bigint, seq bigint) language sql immutable as $$
  select p_jobs[i], p_jobs[i + cardinality(p_jobs) / 2] from generate_series(1, cardinality(p_jobs) / 2) i
$$;

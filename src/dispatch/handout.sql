-- A claimed job as its worker gets it: an array, to be short on the wire (dispatch/claim.ts names the places; mark_v1
-- writes the same out, because a call per row is dear).
-- Inputs of more than 16 KiB are left out, and fetched in a second query: a reply must fit the socket's buffers,
-- else a stopped worker would keep the claim's transaction, and its locks, open.
create or replace function sluice.handout_v1(p_job sluice.job) returns json language sql stable as $$
  select json_build_array(p_job.seq, p_job.id, p_job.task, p_job.queue, p_job.attempt, p_job.failed, p_job.crashes,
    p_job.ambiguous, p_job.priority, extract(epoch from p_job.created_at)::float8, p_job.takes, p_job.tags,
    pg_column_size(p_job.input) > 16384, case when pg_column_size(p_job.input) <= 16384 then p_job.input end)
$$;

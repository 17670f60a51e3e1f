-- A job that was handed out before, as its worker gets it when it asks again: an array, to be short on the wire
-- (dispatch/claim.ts names the places; mark_v1 writes the same). Input and tags are fetched in a second query (why: mark_v1).
create or replace function sluice.handout_v1(p_job sluice.job) returns json language sql stable as $$
  select json_build_array(p_job.seq, p_job.id, p_job.task, p_job.queue, p_job.attempt, p_job.failed, p_job.crashes,
    p_job.ambiguous, p_job.priority, extract(epoch from p_job.created_at)::float8, p_job.takes, null, true, null,
    sluice.admitted_v1(p_job.raw, p_job.ruled), p_job.costs,
    (select min(d.grant_us) from unnest(p_job.takes) t cross join lateral (
      select l.grant_us from sluice.limit_def l where l.name = substring(t from '^[^:@*]*') order by l.version desc limit 1) d), p_job.holds)
$$;

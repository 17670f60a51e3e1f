-- Returns a job that was handed out before as a JSON array without input and tags (`engine.encode_job`), for a worker
-- that repeats its claim.
create or replace function engine.encode_job_again(p_job sluice.job) returns text language sql stable as $$
  select '[' || engine.encode_job(p_job, (
    select min(d.grant_us) from unnest(p_job.takes) t
    cross join lateral (
      select l.grant_us from sluice.limit_def l
      where l.name = substring(t from '^[^:@*]*') order by l.version desc limit 1) d), false, null) || ']'
$$;

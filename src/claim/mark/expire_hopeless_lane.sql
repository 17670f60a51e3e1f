-- Ends waiting jobs of a lane that expire before a bucket of theirs can have room. It waits for no row: a transaction
-- that has a job locked decides about that job. Returns how many jobs it ended.
-- p_at: the earliest time at which the bucket can have room, in microseconds of the limiter clock.
-- p_most: how many jobs it ends at most.
create or replace function engine.expire_hopeless_lane(p_lane bigint, p_bucket bigint, p_at bigint, p_most integer)
returns integer
language plpgsql as $$
declare
  v_ids uuid[];
  v_jobs sluice.job[];
begin
  v_ids := array(
    select id from sluice.job
    where lane = p_lane and expires_at <= engine.store_time(p_at) and due_at is null and claim is null
    order by expires_at limit p_most for update skip locked);
  if v_ids = '{}' then return 0; end if;
  with gone as (delete from sluice.job j where j.id = any (v_ids) returning j.*)
  select array_agg(g::sluice.job) into v_jobs from gone g;
  perform engine.record_failed_jobs(v_jobs, 'expired', 'SLUICE_NO_ROOM_IN_TIME', (
    select format('limit "%s"%s has no room before %s, and the job had to begin by %%s', b.name,
                  case when b.key <> '' then format(' of "%s"', replace(b.key, '%', '%%')) else '' end,
                  engine.format_utc(engine.store_time(p_at)))
    from sluice.bucket b where b.id = p_bucket));
  return cardinality(v_jobs);
end $$;

-- Ends up to p_most waiting jobs of a lane that expire before p_at (in the limiter's time), when this bucket can have room for them
-- at the earliest. It waits for no row: who holds one decides about it. Returns how many.
create or replace function engine.hopeless(p_lane bigint, p_bucket bigint, p_at bigint, p_most integer) returns integer
language plpgsql as $$
declare
  v_ids uuid[];
  v_jobs sluice.job[];
begin
  v_ids := array(select id from sluice.job where lane = p_lane and expires_at <= engine.wall(p_at) and due_at is null and claim is null
                 order by expires_at limit p_most for update skip locked);
  if v_ids = '{}' then return 0; end if;
  with gone as (delete from sluice.job j where j.id = any (v_ids) returning j.*)
  select array_agg(g::sluice.job) into v_jobs from gone g;
  perform engine.bury(v_jobs, 'expired', 'SLUICE_NO_ROOM_IN_TIME', (
    select format('limit "%s"%s has no room before %s, and the job had to begin by %%s', b.name,
                  case when b.key <> '' then format(' of "%s"', replace(b.key, '%', '%%')) else '' end, engine.utc(engine.wall(p_at)))
    from sluice.bucket b where b.id = p_bucket));
  return cardinality(v_jobs);
end $$;

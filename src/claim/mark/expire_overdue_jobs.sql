-- Ends waiting and scheduled jobs that have expired, and returns how many. No limit is charged. It skips rows that are
-- locked, because a claim that calls it may hold classes and buckets; whoever has locked such a job ends it, or leaves
-- it to the next call.
-- p_ids: the jobs to look at. Null: up to 500 of all jobs but parked ones, unless another process does the same just
-- now, and jobs that cannot begin before they expire (`engine.expire_hopeless_jobs`).
create or replace function engine.expire_overdue_jobs(p_ids uuid[]) returns integer language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_now timestamptz := sluice.now();
  v_ids uuid[];
  v_jobs sluice.job[];
begin
  if p_ids is null then
    if not pg_try_advisory_xact_lock(1397511523, -9) then return 0; end if;
    v_ids := array(select id from sluice.job
                   where expires_at <= v_now and claim is null and due_at is distinct from 'infinity'
                   order by expires_at limit 500 for update skip locked);
  else
    v_ids := array(select id from sluice.job where id = any (p_ids) and expires_at <= v_now and claim is null
                   for update skip locked);
  end if;
  with gone as (delete from sluice.job j where j.id = any (v_ids) returning j.*)
  select array_agg(g::sluice.job) into v_jobs from gone g;
  perform engine.record_failed_jobs(v_jobs, 'expired', 'SLUICE_EXPIRED', 'it could not begin within its maxWait');
  return coalesce(cardinality(v_jobs), 0) + case when p_ids is null then engine.expire_hopeless_jobs() else 0 end;
end $$;

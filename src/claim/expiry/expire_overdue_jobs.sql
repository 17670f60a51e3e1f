-- Ends the jobs that cannot begin any more: those that have expired, waiting or scheduled, those that cost too much
-- (`engine.refuse_expensive_jobs`), and those that cannot begin before they expire (`engine.expire_hopeless_jobs`).
-- Returns how many it dealt with. No limit is charged. It does nothing while another process does the same, and waits
-- for no row: a job that is locked is left to the next call.
create or replace function engine.expire_overdue_jobs() returns integer language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_most constant integer := 500;
  v_now timestamptz := sluice.now();
  v_ids uuid[];
  v_jobs sluice.job[];
begin
  if not pg_try_advisory_xact_lock(1397511523, -9) then return 0; end if;  -- lock: expired jobs
  v_ids := array(select id from sluice.job
                 where expires_at <= v_now and claim is null
                   and (due_at = 'infinity' and delay_reason is null) is not true
                 order by expires_at limit v_most for update skip locked)
    -- Others may have passed what a claim found expired: it ends even if the clock was set back since.
    || array(select id from sluice.job where due_at = 'infinity' and delay_reason = 'expired'
             limit v_most for update skip locked);
  with gone as (delete from sluice.job j where j.id = any (v_ids) returning j.*)
  select array_agg(g::sluice.job) into v_jobs from gone g;
  perform engine.record_failed_jobs(v_jobs, 'expired', 'SLUICE_EXPIRED', 'it could not begin within its maxWait');
  if cardinality(v_jobs) >= v_most then return cardinality(v_jobs); end if;
  return coalesce(cardinality(v_jobs), 0) + engine.refuse_expensive_jobs() + engine.expire_hopeless_jobs();
end $$;

-- Ends waiting and scheduled jobs, but for parked ones, whose time to begin is over: of p_ids those, else (null) up to 500 of all, if nobody else
-- looks for them just now, and those that cannot begin in time (expire_hopeless.sql). No limit is asked and no token spent. It waits for no row, since claims may hold classes and
-- buckets here: who holds one ends it, or leaves it to the next look. Returns how many.
create or replace function engine.overdue(p_ids uuid[]) returns integer language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_now timestamptz := sluice.now();
  v_ids uuid[];
  v_jobs sluice.job[];
begin
  if p_ids is null then
    if not pg_try_advisory_xact_lock(1397511523, -9) then return 0; end if;
    v_ids := array(select id from sluice.job where expires_at <= v_now and claim is null and due_at is distinct from 'infinity'
                   order by expires_at limit 500 for update skip locked);
  else
    v_ids := array(select id from sluice.job where id = any (p_ids) and expires_at <= v_now and claim is null for update skip locked);
  end if;
  with gone as (delete from sluice.job j where j.id = any (v_ids) returning j.*)
  select array_agg(g::sluice.job) into v_jobs from gone g;
  perform engine.bury(v_jobs, 'expired', 'SLUICE_EXPIRED', 'it could not begin within its maxWait');
  return coalesce(cardinality(v_jobs), 0) + case when p_ids is null then engine.expire_hopeless() else 0 end;
end $$;

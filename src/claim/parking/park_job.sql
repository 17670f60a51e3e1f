-- Parks a waiting job, and returns its name. It becomes due at infinity, so that no claim finds it among waiting jobs.
-- `delay_reason` stays null, because a value there means that a claim has set the job aside (`engine.set_aside_jobs`).
-- Call under the locks of the job and of its class.
-- p_lane: its lane
-- p_fault: its seq, and the error that its data caused
create or replace function engine.park_job(p_lane bigint, p_fault engine.fault) returns text language plpgsql as $$
declare
  v_id uuid;
  v_now timestamptz := sluice.now();
begin
  update sluice.job j set due_at = 'infinity', delay_reason = null
    where j.lane = p_lane and j.seq = p_fault.id and j.claim is null and j.due_at is null
  returning j.id into v_id;
  insert into sluice.parked (kind, job, name, error, code, at)
    values ('job', v_id, v_id, p_fault.error, p_fault.code, v_now)
  on conflict (kind, name) do update set error = excluded.error, code = excluded.code, at = excluded.at;
  return v_id;
end $$;

-- Returns the state of an unfinished job. A job that was granted ahead of time waits in the hands of its worker until
-- its instant. In the hands of a dispatcher a job is `dispatched` until a worker has begun it.
create or replace function engine.state_of_job(p_job sluice.job) returns text language plpgsql stable as $$
begin
  return case
    when engine.scheduled_until(p_job) is not null then 'scheduled'
    when p_job.claim is null or engine.is_granted_ahead(p_job) then 'waiting'
    when exists (select 1 from sluice.claim c join sluice.worker w on w.id = c.worker
                 where c.id = p_job.claim and w.stints is not null and p_job.seq <> all (coalesce(c.begun, '{}')))
      then 'dispatched'
    else 'running' end;
end $$;

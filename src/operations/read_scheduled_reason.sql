-- Returns why a job is scheduled: `retry`, `delay`, `throttled` by the vendor, `snoozed` by its handler, held by a
-- `rule`, or because older code does not know its task or allow its cost; null: it is not scheduled.
-- p_job: an unfinished job.
create or replace function engine.read_scheduled_reason(p_job sluice.job) returns text language plpgsql stable as $$
begin
  return case when engine.scheduled_until(p_job) is null then null
              when p_job.delay_reason = 'snooze' then 'snoozed' when p_job.delay_reason = 'throttled' then 'throttled'
              when p_job.delay_reason is not null then 'rule'
              when p_job.attempt > 0 then 'retry' else 'delay' end;
end $$;

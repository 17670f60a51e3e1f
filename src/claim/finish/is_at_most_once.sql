-- True when a job may be attempted only once: it is not tried again when the outcome of an attempt is in doubt. The job
-- was sent with that option, or its task's code has it now.
create or replace function engine.is_at_most_once(p_job sluice.job) returns boolean language plpgsql stable as $$
begin
  if p_job.once then return true; end if;
  return exists (select 1 from sluice.task t where t.name = p_job.task and t.once);
end $$;

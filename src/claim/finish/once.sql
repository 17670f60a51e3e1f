-- True when a job may not be tried again in doubt: it said so when it was sent, or its task's code says so now.
create or replace function engine.once(p_job sluice.job) returns boolean language sql stable as $$
  select coalesce(p_job.once, false) or exists (select 1 from sluice.task t where t.name = p_job.task and t.once)
$$;

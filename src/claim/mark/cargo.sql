-- Returns a job's input, and its tags if it has any, as JSON text that follows the elements of `engine.hand`.
create or replace function engine.cargo(p_job sluice.job) returns text language sql stable as $$
  select coalesce(p_job.input::text, 'null') || coalesce(',' || to_json(p_job.tags)::text, '')
$$;

-- Returns a job's input, and its tags if it has any, as JSON text that follows the elements of `engine.encode_job`.
create or replace function engine.encode_job_payload(p_job sluice.job) returns text language sql stable as $$
  select coalesce(p_job.input::text, 'null') || coalesce(',' || to_json(p_job.tags)::text, '')
$$;

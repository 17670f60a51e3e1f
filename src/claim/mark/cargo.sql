-- A job's input and its tags, if any: the places after those of hand.
create or replace function engine.cargo(p_job sluice.job) returns text language sql stable as $$
  select coalesce(p_job.input::text, 'null') || coalesce(',' || to_json(p_job.tags)::text, '')
$$;

-- A job's input and its tags, if any: the places after those of hand_v1.
create or replace function sluice.cargo_v1(p_job sluice.job) returns text language sql stable as $$
  select coalesce(p_job.input::text, 'null') || coalesce(',' || to_json(p_job.tags)::text, '')
$$;

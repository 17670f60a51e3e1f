-- Returns whether code repeats a definition (p_spec) that other code keeps replacing: p_spec was put in force at least
-- five times within a day, and first appeared before the definition that the code gives now (p_old). Without this,
-- two versions that start in turns (cron jobs on two machines) would each rebuild all buckets and append a definition
-- at every start. A rollback still takes effect at once.
create or replace function engine.is_replaced_definition(p_name text, p_spec jsonb, p_old jsonb, p_now timestamptz)
returns boolean
language plpgsql stable as $$
begin
  return (select count(*) filter (where d.spec = p_spec and d.created_at > p_now - interval '1 day') >= 5
             and min(d.version) filter (where d.spec = p_spec) < min(d.version) filter (where d.spec = p_old)
          from sluice.limit_def d where d.name = p_name and d.source = 'code') is true;
end $$;

-- Whether code keeps saying what other code has replaced: its definition (p_spec) was put in force five times within a
-- day, and first came up before the one that the code says now (p_old). Two versions that begin in turns (cron jobs on
-- two machines) would otherwise each have all buckets made anew, and append a definition, at each start. A rollback
-- still holds at once.
create or replace function engine.is_earlier(p_name text, p_spec jsonb, p_old jsonb, p_now timestamptz) returns boolean
language plpgsql stable as $$
begin
  return (select count(*) filter (where d.spec = p_spec and d.created_at > p_now - interval '1 day') >= 5
             and min(d.version) filter (where d.spec = p_spec) < min(d.version) filter (where d.spec = p_old)
          from sluice.limit_def d where d.name = p_name and d.source = 'code') is true;
end $$;

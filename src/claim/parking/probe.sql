-- Does what a claim does with these buckets, lanes or jobs of a class, or with the whole class, and rolls it back,
-- with its locks. Returns the error that it met, null when it met none by data: a lock that was not free in time is
-- nobody's fault.
-- p_trial, p_of, p_ids: narrow.sql; p_of may be class
create or replace function engine.probe(p_trial engine.trial, p_of text, p_ids bigint[])
returns engine.fault language plpgsql as $$
begin
  case p_of
    when 'class' then perform engine.try_class(p_trial);
    when 'bucket' then perform engine.try_buckets(p_trial, p_ids);
    when 'lane' then perform engine.try_lanes(p_trial, p_ids);
    else perform engine.try_jobs(p_trial, p_ids);
  end case;
  raise exception using errcode = 'SLW00';
exception when others or assert_failure then
  if sqlstate !~ '^(22|23)' and sqlstate <> 'P0004' then return null; end if;
  return row(null, sqlstate, sqlerrm)::engine.fault;
end $$;

-- Tries what a claim does with these buckets, lanes or jobs of a class, or with the whole class, and rolls it back
-- together with its locks. Returns the error, or null if there was none by data: a lock that was not free in time is
-- not an error of data.
-- p_rehearsal, p_ids: as in `engine.find_faults`
-- p_of: bucket, lane, job, or class
create or replace function engine.rehearse_claim(p_rehearsal engine.rehearsal, p_of text, p_ids bigint[])
returns engine.fault language plpgsql as $$
begin
  case p_of
    when 'class' then perform engine.try_class(p_rehearsal);
    when 'bucket' then perform engine.try_buckets(p_rehearsal, p_ids);
    when 'lane' then perform engine.try_lanes(p_rehearsal, p_ids);
    else perform engine.try_jobs(p_rehearsal, p_ids);
  end case;
  raise exception using errcode = 'SLW00';
exception when others or assert_failure then
  if sqlstate !~ '^(22|23)' and sqlstate <> 'P0004' then return null; end if;
  return row(null, sqlstate, sqlerrm)::engine.fault;
end $$;

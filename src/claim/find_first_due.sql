-- Returns a time before which no job and no list of these classes was due, in the limiter's time, in microseconds. It
-- stays five seconds behind, because other transactions may be about to write due times; all that they write is later.
-- p_now, p_since: in the limiter's time, in microseconds; nothing was due before p_since
-- p_job: when the first scheduled job is due; null: none is scheduled
create or replace function engine.find_first_due(p_classes bigint[], p_now bigint, p_since bigint, p_job bigint)
returns bigint language plpgsql stable as $$
begin
  return least(p_now - 5000000, p_job - 1, (
    select min(w.due) - 1 from unnest(p_classes) c (id) cross join lateral (
      select l.due from sluice.list l
      where l.class = c.id and l.due > p_since and l.id <> 0 order by l.due limit 1) w));
end $$;

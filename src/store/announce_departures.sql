-- Announces to claims that jobs no longer wait though no claim took them: an arrival of lane 0, which no job has, of
-- fewer than 0 jobs. So the recorded number of waiting jobs of their classes stays right.
-- p_jobs: the jobs as they were; those that did not wait are left out.
create or replace function engine.announce_departures(p_jobs sluice.job[]) returns void language plpgsql as $$
begin
  insert into sluice.arrival (xid, class, lane, pos, n)
  select pg_current_xact_id(), engine.class_id(j.queue, j.task, j.buckets), 0, 0, -count(*)
  from unnest(p_jobs) j where j.claim is null and j.due_at is null group by 2;
end $$;

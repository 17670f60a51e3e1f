-- Locks the classes of jobs that go back to their places: the one that comes next has to wait for the place that such a
-- job frees, and a claim under way, which has read what arrived before, would give it that place. A later claim reads
-- the arrival of the job with the place that is free. To be called before claims' rows are locked.
-- p_ids: the jobs, and any others.
create or replace function engine.lock_classes_of_jobs(p_ids uuid[]) returns void language plpgsql as $$
begin
  perform engine.lock_classes(array(
    select distinct engine.class_id(j.queue, j.task, j.takes) from sluice.job j where j.id = any (p_ids)));
end $$;

-- Locks the classes of jobs that go back to their places in their lanes. Such a job frees room, which no later job of
-- its lane may get. Without the lock a claim under way, which has read only earlier arrivals, would give it the room;
-- a later claim reads the job's arrival before it finds the room. Call it before claims' rows are locked.
-- p_ids: the jobs, and any others.
-- p_places: as in `engine.readmit_jobs`, for jobs that go to other lanes. Null: there are none.
create or replace function engine.lock_classes_of_jobs(p_ids uuid[], p_places text[] default null) returns void
language plpgsql as $$
begin
  perform engine.lock_classes(array(
    select engine.class_id(j.queue, j.task, j.buckets) from sluice.job j where j.id = any (p_ids)
    union
    select engine.class_id(coalesce(p ->> 'queue', j.queue), coalesce(p ->> 'task', j.task),
      case when p -> 'buckets' <> 'null' then array(select jsonb_array_elements_text(p -> 'buckets')) end)
    from unnest(p_ids, p_places) u (id, place) join sluice.job j on j.id = u.id
    cross join lateral (select u.place::jsonb as p) x
    where u.place is not null));
end $$;

-- Locks the classes of the jobs that a worker has claimed, before they go back to their places
-- (`engine.lock_classes_of_jobs`).
create or replace function engine.lock_classes_of_worker(p_worker bigint) returns void language plpgsql as $$
begin
  perform engine.lock_classes_of_jobs(array(
    select j.id from sluice.claim c cross join unnest(c.lanes, c.seqs) s (lane, seq)
    join sluice.job j on j.lane = s.lane and j.seq = s.seq and j.due_at is null and j.claim = c.id
    where c.worker = p_worker));
end $$;

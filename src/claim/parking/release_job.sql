-- Releases a parked job: it waits at its place in its lane again, and an arrival announces it to the next claim.
-- Returns false when it is not parked.
create or replace function engine.release_job(p_job uuid) returns boolean language plpgsql as $$
begin
  with back as (
    update sluice.job j set due_at = null
      where j.id = p_job and j.due_at = 'infinity' returning j.lane, j.seq, j.queue, j.task, j.takes
  )
  insert into sluice.arrival (xid, class, lane, pos, n)
  select pg_current_xact_id(), c.class, b.lane, b.seq, 1 from back b
    cross join lateral engine.find_arrival_classes(b.queue, b.task, b.takes) c;
  return found;
end $$;

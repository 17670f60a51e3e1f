-- Rebuilds the arrivals of a class from its jobs, after a restore, when the recorded snapshots mean nothing in this
-- server. Reads every waiting job once. Lanes keep their places. Call under the class's lock. It does nothing while
-- `engine.delete_read_arrivals` is running, which deletes such rows class by class in another order: call it again
-- then.
-- p_class: the class; 0: all jobs
create or replace function engine.rebuild_arrivals(p_class bigint) returns void language plpgsql as $$
begin
  if not pg_try_advisory_xact_lock(1397511523, -4) then return; end if;  -- lock: arrivals
  delete from sluice.class_state where class = p_class;
  delete from sluice.arrival where class = p_class;
  insert into sluice.arrival (xid, class, lane, pos, n)
  select pg_current_xact_id(), p_class, j.lane, min(j.seq), count(*) from sluice.job j
  where j.claim is null and j.due_at is null and (p_class = 0 or exists (
    select 1 from sluice.class c where c.id = p_class and (c.queue, c.task) = (j.queue, j.task)
      and c.labels is not distinct from engine.find_label_limits(j.buckets)))
  group by j.lane;
end $$;

-- Begins the bookkeeping of a class's arrivals anew, from the jobs themselves: after a restore, when what was noted of
-- transactions means nothing in this server. Reads every waiting job once. Lanes keep their places. Call under the class's
-- lock; it does nothing while sweep is at work, which deletes such rows class by class in an order of its own: call it again.
create or replace function engine.recount(p_class bigint) returns void language plpgsql as $$
begin
  if not pg_try_advisory_xact_lock(1397511523, -4) then return; end if;
  delete from sluice.class_state where class = p_class;
  delete from sluice.arrival where class = p_class;
  insert into sluice.arrival (xid, class, lane, pos, n)
  select pg_current_xact_id(), p_class, lane, min(seq), count(*) from sluice.job
  where claim is null and due_at is null and (p_class = 0 or engine.class_id(queue, task, takes) = p_class) group by lane;
end $$;

-- Begins the bookkeeping of a class's arrivals anew, from the jobs themselves: after a restore, when what was noted of
-- transactions means nothing in this server. Reads every waiting job once. Call under the class's lock.
create or replace function engine.recount(p_class bigint) returns void language plpgsql as $$
begin
  delete from sluice.class_state where class = p_class;
  delete from sluice.arrival where class = p_class;
  update sluice.lane set v = v + 1, list = null, vstart = coalesce(vstart, 0) where class = p_class and list is not null;
  delete from sluice.reservation where class = p_class;
  delete from sluice.list where class = p_class and id <> 0;
  update sluice.list set v = v + 1, due = null where class = p_class;
  insert into sluice.arrival (xid, class, lane, pos, n)
  select pg_current_xact_id(), p_class, lane, min(seq), count(*) from sluice.job
  where claim is null and due_at is null and (p_class = 0 or engine.class_id(queue, task, takes) = p_class) group by lane;
end $$;

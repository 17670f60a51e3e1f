-- Releases a parked lane: deletes its row, so that the next claim makes it again from its first job. Returns false when
-- it is not parked.
create or replace function engine.release_lane(p_lane bigint) returns boolean language plpgsql as $$
begin
  perform engine.lock_classes(array(select l.class from sluice.lane l where l.id = p_lane and l.list = 1));
  delete from sluice.lane l where l.id = p_lane and l.list = 1;
  if not found then return false; end if;
  insert into sluice.arrival (xid, class, lane, pos, n)
  select pg_current_xact_id(), c.class, p_lane, w.pos, w.n
  from (select min(j.seq) as pos, count(*) as n, min(j.queue) as queue, min(j.task) as task, min(j.takes) as takes
        from sluice.job j where j.lane = p_lane and j.claim is null and j.due_at is null) w
  cross join lateral engine.find_arrival_classes(w.queue, w.task, w.takes) c where w.n > 0;
  return true;
end $$;

-- Updates the ready list of a class that has ready lanes now. Its due time is p_now, to the second: the row is
-- rewritten once a second, so that workers which looked at lists that were due before see it, and readers pass few dead
-- turns.
-- p_front: the smallest virtual start among the ready lanes, or less.
create or replace function engine.update_ready_list(p_class bigint, p_now bigint, p_front bigint) returns void
language plpgsql as $$
begin
  update sluice.list l set v = l.v + 1, floor = p_front, due = p_now
  where l.ctid = (select k.ctid from sluice.list k where k.class = p_class and k.id = 0 order by k.v desc limit 1)
    and (l.due is null or l.due < p_now - 1000000 or l.floor > p_front);
  if not found and not exists (select 1 from sluice.list k where k.class = p_class and k.id = 0) then
    insert into sluice.list (class, id, floor, due) values (p_class, 0, p_front, p_now);
  end if;
end $$;

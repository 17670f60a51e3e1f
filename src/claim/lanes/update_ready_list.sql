-- Updates the ready list of a class that has ready lanes now. Its due time is p_now, to the second: the row is
-- rewritten once a second, so that workers which looked at lists that were due before see it.
-- p_now: microseconds of the limiter clock.
-- p_least: the smallest virtual start among the lanes that joined the list or moved in it.
create or replace function engine.update_ready_list(p_class bigint, p_now bigint, p_least bigint) returns void
language plpgsql as $$
begin
  update sluice.list l set v = l.v + 1, floor = least(l.floor, p_least), due = p_now
  where l.ctid = (select k.ctid from sluice.list k where k.class = p_class and k.id = 0 order by k.v desc limit 1)
    and (l.due is null or l.due < p_now - 1000000 or l.floor > p_least);
  if not found and not exists (select 1 from sluice.list k where k.class = p_class and k.id = 0) then
    insert into sluice.list (class, id, floor, due) values (p_class, 0, p_least, p_now);
  end if;
end $$;

-- Calls idle workers, p_most for each of these classes: room was made that no sleeper was told of. By their ids, so that
-- one place which frees wakes one worker and not the fleet; and off the list, so that the next place wakes another.
create or replace function sluice.summon_v1(p_classes bigint[], p_most bigint) returns void language plpgsql as $$
declare
  v_called bigint;
begin
  with called as (
    delete from sluice.idle where worker = any (array(
      select i.worker from unnest(p_classes) u (id) join sluice.class c using (id)
      cross join lateral (
        select i.worker from sluice.idle i join sluice.worker w on w.id = i.worker
        where (i.queues is null or c.queue = any (i.queues)) and c.task = any (w.tasks) order by random() limit p_most for update of i skip locked) i))
    returning worker
  )
  select count(pg_notify('sluice.wake', '@' || worker)) into v_called from called;
end $$;

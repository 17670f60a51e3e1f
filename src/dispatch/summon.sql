-- Calls one idle worker for each of these classes (there may be several of one): room was made that no sleeper was told
-- of. Called by its id, so that one place which frees wakes one worker and not the fleet; and off the list, so that the
-- next place wakes another.
create or replace function sluice.summon_v1(p_classes bigint[]) returns void language plpgsql as $$
declare
  v_class record;
  v_worker bigint;
begin
  for v_class in select c.queue, c.task from unnest(p_classes) u (id) join sluice.class c using (id) loop
    delete from sluice.idle where worker = (
      select i.worker from sluice.idle i join sluice.worker w on w.id = i.worker
      where (i.queues is null or v_class.queue = any (i.queues)) and v_class.task = any (w.tasks)
      order by random() limit 1 for update of i skip locked) returning worker into v_worker;
    if v_worker is not null then perform pg_notify('sluice.wake', '@' || v_worker); end if;
  end loop;
end $$;

-- Wakes up to p_most idle workers that can begin jobs of these classes. It reads the idle workers in the order of their
-- ids from a random one on, so its cost does not grow with the fleet. It locks no row, because the caller may be a
-- sender in a long transaction. A worker that gets as many jobs as it wanted wakes the next one.
-- If a worker was stopped or busy, a round wakes another within 2 s (`engine.wake_for_missed_work`). For classes with
-- labels it wakes all idle workers of the queues, because only a worker knows whether its own label has room.
create or replace function engine.wake_workers(p_classes bigint[], p_most integer) returns void language plpgsql as $$
declare
  v_classes bigint[] := p_classes;
  v_is record;
  v_from bigint;
begin
  select exists (select 1 from sluice.gate) as gates,
         exists (select 1 from sluice.class c where c.id = any (p_classes) and c.labels is not null) as labels,
         min(i.worker) as least, max(i.worker) as most into v_is from sluice.idle i;
  if v_is.least is null then return; end if;
  if v_is.labels then
    perform engine.wake_queues(array(select distinct c.queue from sluice.class c where c.id = any (p_classes)));
    return;
  end if;
  if v_is.gates then
    v_classes := array(select unnest(p_classes) except
      select unnest(engine.find_gated_classes(p_classes, sluice.now())));
  end if;
  v_from := v_is.least + floor(random() * (v_is.most - v_is.least + 1))::bigint;
  perform pg_notify('sluice.wake', '@' || c.worker)
  from (select i.worker
        from (select a.* from sluice.idle a where a.worker >= v_from
              union all
              select b.* from sluice.idle b where b.worker < v_from) i
        join sluice.worker w on w.id = i.worker
        where engine.can_worker_serve(row(i.*)::sluice.idle, w, v_classes) limit p_most) c;
end $$;

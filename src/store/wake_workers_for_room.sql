-- Notifies idle workers that can begin a job of one of these classes (`engine.can_worker_serve`), after room was made
-- that no sleeper waits for. It notifies them by their ids, so that one free place wakes one worker and not the fleet,
-- and deletes them from sluice.idle, so that the next place wakes another worker.
-- p_most: how many workers at most; null: all
-- p_label, p_value: notify only workers that have this value of this label; null: all
create or replace function engine.wake_workers_for_room(
  p_classes bigint[], p_most bigint, p_label text default null, p_value text default null)
returns void language plpgsql as $$
declare
  v_called bigint;
begin
  with called as (
    delete from sluice.idle where worker = any (array(
      select i.worker from sluice.idle i join sluice.worker w on w.id = i.worker
      where (p_label is null or w.labels ->> p_label = p_value)
        and engine.can_worker_serve(i, w, p_classes, p_label is not null)
      order by random() limit p_most for update of i skip locked))
    returning worker
  )
  select count(pg_notify('sluice.wake', '@' || worker)) into v_called from called;
end $$;

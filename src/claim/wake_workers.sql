-- Notifies idle workers that can begin a job of one of these classes, after room was made that no sleeper waits for, or
-- after a claim that left jobs. It notifies them by their ids, so that one free place wakes one worker and not the
-- fleet, and deletes them from sluice.idle, so that the next place wakes another worker. A sender must lock no worker,
-- because its transaction may be long (`engine.wake_workers_for_send`). A worker is left out if a limit by one of its
-- labels has no room for the class (`engine.find_classes_without_room`).
-- p_now: the limiter's clock, in microseconds
-- p_most: how many workers at most; null: all
-- p_label, p_value: notify only workers that have this value of this label; null: all
create or replace function engine.wake_workers(
  p_classes bigint[], p_now bigint, p_most bigint, p_label text default null, p_value text default null)
returns void
language plpgsql as $$
declare
  v_labelled constant boolean := exists (
    select 1 from sluice.class c where c.id = any (p_classes) and c.labels is not null);
  v_called bigint;
begin
  with called as (
    delete from sluice.idle where worker = any (array(
      select i.worker from sluice.idle i join sluice.worker w on w.id = i.worker
      where (p_label is null or w.labels ->> p_label = p_value)
        and engine.can_worker_serve(i, w, case when not v_labelled then p_classes else array(
          select unnest(p_classes) except
          select unnest((engine.find_classes_without_room(w.labels, p_classes, p_now)).classes)) end)
      order by random() limit p_most for update of i skip locked))
    returning worker
  )
  select count(pg_notify('sluice.wake', '@' || worker)) into v_called from called;
end $$;

-- Wakes another worker after a claim that got as many jobs as it wanted, because there may be more: senders wake few.
-- If jobs need labels, it wakes all that have room: the next one may have little of it, and then wakes no other.
-- After a claim ahead of time it wakes one only if none is going to wake by itself for the limit's next units.
-- p_classes: the classes of the claim
-- p_now: the time of the claim, in microseconds
-- p_ahead: it was a claim ahead of time
create or replace function engine.wake_next_worker(
  p_worker bigint, p_classes bigint[], p_now bigint, p_ahead boolean) returns void
language plpgsql as $$
begin
  if not exists (select 1 from sluice.idle) or p_ahead and exists (
    select 1 from sluice.idle i
    where i.worker <> p_worker and i.wake_at between p_now and p_now + 1000000
      and i.bucket in (select l.id from sluice.list l where l.class = any (p_classes))) then return;
  end if;
  delete from sluice.idle i where i.worker = p_worker;
  perform engine.wake_workers(p_classes, p_now, case when not exists (
    select 1 from sluice.class c where c.id = any (p_classes) and c.labels is not null) then 1 end);
end $$;

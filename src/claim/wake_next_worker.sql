-- Wakes another worker after a claim that got as many jobs as it wanted, because there may be more: senders wake few.
-- After a claim ahead of time it does so only if no worker is going to wake by itself for the limit's next units.
-- p_classes: the classes of the claim
-- p_now: the time of a claim ahead of time, in microseconds; null: it was none
create or replace function engine.wake_next_worker(p_worker bigint, p_classes bigint[], p_now bigint) returns void
language plpgsql as $$
begin
  if not exists (select 1 from sluice.idle) or p_now is not null and exists (
    select 1 from sluice.idle i
    where i.worker <> p_worker and i.wake_at between p_now and p_now + 1000000
      and i.bucket in (select l.id from sluice.list l where l.class = any (p_classes))) then return;
  end if;
  delete from sluice.idle i where i.worker = p_worker;
  perform engine.wake_workers(p_classes, 1);
end $$;

-- Returns the classes for which another worker is to be woken (`engine.wake_workers`), after a claim that got as many
-- jobs as it wanted: there may be more, and senders wake few workers. Null: no other worker is idle, or the claim was
-- ahead of time, and another worker is going to wake by itself for the limit's next units. The claim's own worker is no
-- longer registered as idle.
-- p_classes: the classes of the claim
-- p_is_ahead: the claim was ahead of time
create or replace function engine.find_classes_to_wake(
  p_worker bigint, p_classes bigint[], p_now bigint, p_is_ahead boolean) returns bigint[]
language plpgsql as $$
begin
  if not exists (select 1 from sluice.idle) then return null; end if;
  if p_is_ahead then
    if exists (
      select 1 from sluice.idle i where i.worker <> p_worker and i.wake_at between p_now and p_now + 1000000
        and i.bucket in (select l.id from sluice.list l where l.class = any (p_classes)))
    then return null; end if;
  end if;
  delete from sluice.idle i where i.worker = p_worker;
  return case when exists (select 1 from sluice.idle) then p_classes end;
end $$;

-- Takes the places of a bucket from processes that have not said for too long that they live, and gives those up for
-- good: whoever says so later is told that it has lost them. Those who wait for the places look at once: whoever asked,
-- it may not be his turn. Call under lock. Returns how many places that were.
create or replace function engine.vacate(p_bucket bigint, p_now bigint) returns integer language plpgsql as $$
declare
  v_places integer;
begin
  -- Marked before anything is taken: a process that renews just now waits for this row, and finds itself given up.
  update sluice.holder set alive_until = 0 where id = any (array(
    select id from sluice.holder where alive_until between 1 and p_now for update skip locked));
  with gone as (
    delete from sluice.lease l using sluice.holder h
      where h.id = l.holder and h.alive_until = 0 and l.bucket = p_bucket returning 1
  )
  select count(*) into v_places from gone;
  if v_places > 0 then
    perform engine.release(array[p_bucket], array[v_places]);
    perform engine.sooner(array[p_bucket], array[v_places], p_now);
  end if;
  return v_places;
end $$;

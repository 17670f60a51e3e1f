-- Takes the places of a bucket from processes whose lease has expired. Such a process has lost its places for good: its
-- next renewal returns that. Jobs and takers that wait for the places are woken, because the one that called this may
-- not have the turn. The caller has locked the bucket. Returns the number of places.
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

-- Grants jobs of a lone lane ahead of time (`engine.grant_ahead`) if nobody else waits for its buckets
-- (`engine.is_waited_for`). If it has several, the one that frees last decides the instants, unless it has a key: then
-- jobs of other keys would find the others without room. The others have as many units now as are granted, and count
-- all of them at the last instant.
-- p_rooms: the buckets, as `engine.bucket_room` returned them
-- p_take: how many jobs of the claim may begin now
-- p_now: the limiter's clock, in microseconds
-- p_ahead: as in `engine.claim_jobs`. A worker for which it is 0, and that gets nothing because of others' grants
-- ahead, stops these (`engine.stop_grants_ahead`).
-- rooms, instants: as in `engine.grant_ahead`; instants is null as well if others wait, or have too few units
-- slowest: the position of the bucket that decides
-- lead: how long before that bucket has room the lane's list is due, in microseconds; 0: nothing is granted ahead. It
-- is 80 ms, because a worker that wakes late, and its claim, mostly take less, so no unit is lost. But 40 ms if the
-- worker could take only what becomes free within 100 ms: workers whose slots are taken for longer would come back for
-- each slot that becomes free.
create or replace function engine.grant_lane_ahead(
  p_lane sluice.lane, p_rooms engine.room[], p_take integer, p_now bigint, p_ahead integer,
  out rooms engine.room[], out instants bigint[], out slowest integer,
  out lead bigint) language plpgsql as $$
declare
  v_single constant boolean := cardinality(p_lane.buckets) = 1;
  v_others bigint[];
  v_grant record;
  v_room engine.room;
begin
  lead := 0;
  if p_ahead = 0 then
    if p_take = 0 and exists (select 1 from unnest(p_rooms) r where r.now_at > p_now) then
      perform engine.stop_grants_ahead(p_lane.buckets, p_now + 30000000); end if;
    return;
  end if;
  if engine.is_waited_for(p_lane.class, p_lane.buckets, p_now) or not v_single and exists (
      select 1 from sluice.list l where l.id = any (p_lane.buckets) and l.id <> 0 and l.id is distinct from p_lane.list)
  then return; end if;
  slowest := 1;
  if not v_single then
    select r.ord into slowest from unnest(p_rooms) r order by r.next desc, r.period desc limit 1;
    if exists (select 1 from sluice.bucket b where b.id = p_lane.buckets[slowest] and b.key <> ''
      or b.id = any (p_lane.buckets) and b.name like '%/%') then return; end if;
  end if;
  v_grant := engine.grant_ahead(p_rooms[slowest], p_ahead, p_now);
  if not v_single and cardinality(v_grant.instants) > 0 then
    v_others := array_remove(p_lane.buckets, p_lane.buckets[slowest]);
    foreach v_room in array engine.bucket_room(v_others, v_grant.instants[1]) loop
      if v_room.now_at > v_grant.instants[1] or v_room.avail < cardinality(v_grant.instants) or v_room.probe > 0
        or 'concurrency' = any (v_room.kind) then return; end if;
    end loop;
    rooms := engine.bucket_room(v_others, (v_grant.room).now_at);
    -- By then another period of a quota may have begun, which was used before a clock was set back.
    if exists (select 1 from unnest(rooms) r where r.avail < cardinality(v_grant.instants)) then return; end if;
  end if;
  rooms := rooms || v_grant.room; instants := v_grant.instants;
  lead := case when instants is null then 0 when instants[p_ahead] <= p_now + 100000 then 40000 else 80000 end;
end $$;

-- Computes how many jobs of lanes may be granted ahead of time (`engine.grant_ahead`). One bucket that all lanes use
-- decides the instants: of those that have too few units, the one that frees last. It has no key, unless it is the only
-- bucket: jobs of other keys would find the others without room.
-- The other buckets of the lanes, such as that of an account, count their units at the last instant and grant nothing
-- else until then, so their room is the smaller of that at the first and at the last instant: between them a period of
-- a quota may begin. Nothing is granted ahead if one of them counts places, because the places would be missing
-- elsewhere until the instants.
-- Nor if anything else waits for one of the buckets, because it would find them without room each time: jobs of another
-- class, other lanes in the list of a bucket that does not decide, takers, or a lane that units are reserved for. Nor
-- if the jobs run at most once, because those that a killed worker was about to begin would end as doubtful.
-- p_lanes: the lanes, of one class and without costs
-- ahead of p_claimer: a worker for which it is 0, and that gets nothing because of others' grants ahead, stops these
-- (`engine.stop_grants_ahead`).
-- early_us of the result is 80 ms, because a worker that wakes late, and its claim, mostly take less, so no unit is
-- lost. It is 40 ms if the worker could take only what becomes free within 100 ms: workers whose slots are taken for
-- longer would come back for each slot that becomes free.
create or replace function engine.grant_lanes_ahead(
  p_claimer engine.claimer, p_room engine.claim_room, p_lanes sluice.lane[])
returns engine.ahead language plpgsql as $$
declare
  v_ahead engine.ahead;
  v_buckets constant bigint[] := p_room.buckets;
  v_now constant bigint := p_room.now_us;
  v_most constant integer := p_claimer.ahead;
  v_single constant boolean := cardinality(v_buckets) = 1;
  v_deciding integer := 1;
  v_grant record;
  v_room engine.room;
  v_rooms engine.room[];
begin
  if v_most is null or v_single and p_room.rooms[1].avail >= p_claimer.want then return v_ahead; end if;
  if not v_single then
    v_deciding := (
      select r.ord from (
        select b from unnest(p_lanes) l, unnest(l.buckets) b group by b having count(*) = cardinality(p_lanes)) s
      join unnest(p_room.rooms) r on r.bucket = s.b join sluice.bucket t on t.id = s.b
      where t.key = '' and r.avail < p_claimer.want order by r.next desc, r.period desc limit 1);
    if v_deciding is null then return v_ahead; end if;
  end if;
  if v_most = 0 then
    if p_room.rooms[v_deciding].now_at > v_now and p_room.rooms[v_deciding].avail = 0 then
      perform engine.stop_grants_ahead(v_buckets[v_deciding:v_deciding], v_now + 30000000); end if;
    return v_ahead;
  end if;
  if exists (
      select 1 from sluice.class c join sluice.task t on t.name = c.task where c.id = p_lanes[1].class and t.once)
    or exists (select 1 from sluice.list l where l.id = any (v_buckets) and l.id <> 0 and l.class <> p_lanes[1].class)
    or exists (select 1 from sluice.reservation r where r.bucket = any (v_buckets))
    or exists (select 1 from sluice.taker t where t.bucket = any (v_buckets) and t.alive_until > v_now)
  then return v_ahead; end if;
  if not v_single then
    if exists (select 1 from sluice.bucket b where b.id = any (v_buckets) and b.name like '%/%')
      or exists (select 1 from unnest(p_room.rooms) r where 'concurrency' = any (r.kind))
      or exists (
        select 1 from sluice.list l where l.id = any (v_buckets) and l.id <> 0 and l.id <> v_buckets[v_deciding]
          and not exists (select 1 from unnest(p_lanes) k where k.list = l.id))
    then return v_ahead; end if;
  end if;
  v_grant := engine.grant_ahead(p_room.rooms[v_deciding], v_most, v_now);
  if v_grant.instants is null then return v_ahead; end if;
  v_ahead.deciding := v_deciding;
  v_ahead.early_us := case when v_grant.instants[v_most] <= v_now + 100000 then 40000 else 80000 end;
  if cardinality(v_grant.instants) <= p_room.rooms[v_deciding].avail then return v_ahead; end if;
  v_ahead.instants := v_grant.instants;
  if not v_single then
    v_rooms := engine.recorded_room(v_buckets, v_grant.instants[1]);
    foreach v_room in array engine.recorded_room(v_buckets, (v_grant.room).now_at) loop
      v_room.avail := case when v_rooms[v_room.ord].now_at > v_grant.instants[1] then 0
        else least(v_room.avail, v_rooms[v_room.ord].avail) end;
      v_rooms[v_room.ord] := v_room;
    end loop;
  end if;
  v_room := v_grant.room; v_room.avail := cardinality(v_grant.instants);
  v_rooms[v_deciding] := v_room; v_ahead.rooms := v_rooms;
  return v_ahead;
end $$;

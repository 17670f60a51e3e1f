-- Computes how many jobs of several lanes may be granted ahead of time (`engine.grant_ahead`). One bucket without a
-- key, which all lanes use, decides the instants; nobody else may wait for any of their buckets
-- (`engine.is_waited_for`).
-- Each lane may have further buckets, such as that of its account. These count their units at the last instant and
-- grant nothing else until then, so their room is the smaller of that at the first and at the last instant: between
-- them a period of a quota may begin. Nothing is granted ahead if a bucket counts places, because the places would be
-- missing elsewhere until the instants.
-- p_lanes: the lanes, of one class and without costs
-- p_rooms: the room of p_buckets, as `engine.read_claim_room` returned it
-- p_want: how many jobs may begin now, at most
-- p_now: the limiter's clock, in microseconds
-- p_ahead: as in `engine.claim_jobs`; null: nothing is granted ahead. A worker for which it is 0, and that gets less
-- because of others' grants ahead, stops these (`engine.stop_grants_ahead`).
-- shared: the position of that bucket; null: nothing is granted ahead
-- instants: as in `engine.grant_ahead`; null: no more jobs than those that may begin now are granted
-- avail: the room of p_buckets, if instants is not null
-- lead: as in `engine.grant_lane_ahead`
create or replace function engine.grant_lanes_ahead(
  p_lanes sluice.lane[], p_buckets bigint[], p_rooms engine.room[], p_want integer, p_now bigint, p_ahead integer,
  out shared integer, out instants bigint[], out avail bigint[],
  out lead bigint) language plpgsql as $$
declare
  v_shared integer;
begin
  if p_ahead is null then return; end if;
  select r.ord into v_shared from (
    select b from unnest(p_lanes) l, unnest(l.buckets) b group by b having count(*) = cardinality(p_lanes)) s
  join unnest(p_rooms) r on r.bucket = s.b join sluice.bucket t on t.id = s.b
  where t.key = '' and r.avail < p_want order by r.next desc, r.period desc limit 1;
  if v_shared is null then return; end if;
  if p_ahead = 0 then
    if p_rooms[v_shared].now_at > p_now then
      perform engine.stop_grants_ahead(array[p_buckets[v_shared]], p_now + 30000000); end if;
    return;
  end if;
  if engine.is_waited_for(p_lanes[1].class, p_buckets, p_now) or exists (
      select 1 from sluice.bucket b where b.id = any (p_buckets) and b.name like '%/%')
    or exists (select 1 from unnest(p_rooms) r where 'concurrency' = any (r.kind)) then return; end if;
  instants := (engine.grant_ahead(p_rooms[v_shared], p_ahead, p_now)).instants;
  if instants is null then return; end if;
  shared := v_shared; lead := case when instants[p_ahead] <= p_now + 100000 then 40000 else 80000 end;
  if cardinality(instants) <= p_rooms[shared].avail then instants := null; return; end if;
  avail := array(
    select case when a.ord = shared then cardinality(instants)
                when a.now_at > instants[1] then 0 else least(a.avail, z.avail) end
    from unnest(engine.bucket_room(p_buckets, instants[1])) a
    join unnest(engine.bucket_room(p_buckets, instants[cardinality(instants)])) z using (ord) order by a.ord);
end $$;

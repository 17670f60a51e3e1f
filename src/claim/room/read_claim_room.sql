-- Reads what buckets allow, by position, under their locks; it reads the clock once, after the locks. Units that are
-- reserved for other lanes (`sluice.reservation`), and units that waiting takers have the turn for
-- (`engine.units_left_for_jobs`), are left out. A reservation that is later than one of p_lanes in the same bucket does
-- not count.
-- p_buckets, p_members: the buckets, locked by the caller, and the members of the pools among them
-- p_lists: p_buckets under the names that lanes use
-- p_lanes: the lanes that are served
-- stale of the result: the buckets that are stale (`engine.recorded_room`), at most 16, because a statement that
-- renewed hundreds might exceed a statement_timeout each time. The caller's worker renews them
-- (`engine.renew_buckets`), because it takes a while; then nothing may be granted now. Null: none, or they are being
-- rebuilt already (sluice.renewal), and have no room meanwhile.
create or replace function engine.read_claim_room(
  p_buckets bigint[], p_members bigint[], p_lists bigint[], p_lanes bigint[], p_cap bigint) returns engine.claim_room
language plpgsql as $$
declare
  v_result engine.claim_room;
  v_rooms engine.room[] := engine.recorded_room(p_buckets || p_members, null, p_cap => p_cap);
  v_room engine.room;
  v_now bigint;
  v_offset bigint;     -- of the limiter's clock over the store's
  v_stale boolean;
  v_kept bigint[];
  v_reserved boolean;  -- units are reserved for lanes
  v_takers boolean;    -- takers wait
begin
  if v_rooms = '{}' then
    select engine.limiter_time(e.clock_offset_us, e.watched, p_cap), e.clock_offset_us into v_now, v_offset
    from sluice.epoch e;
  else
    v_now := v_rooms[1].read_at; v_offset := v_rooms[1].now_at - v_rooms[1].wall;
  end if;
  v_result.now_us := v_now; v_result.at := to_timestamp((v_now - v_offset) / 1e6);
  v_result.buckets := p_lists; v_result.members := p_members; v_result.on_trial := false;
  foreach v_room in array v_rooms loop
    v_stale := v_stale or v_room.stale;
    if v_room.trial_us > 0 and v_room.avail > 0 then v_result.on_trial := true; end if;
  end loop;
  if v_stale then
    v_result.stale := nullif(array(
      select r.bucket from unnest(v_rooms) r
      where r.stale and (r.n > 0 or r.version is not null)  -- a pool has no state of its own
        and not exists (select 1 from sluice.renewal w where w.bucket = r.bucket) limit 16), '{}');
    if v_result.stale is not null then v_result.rooms := v_rooms; return v_result; end if;
  end if;
  select exists (select 1 from sluice.reservation r where r.bucket = any (p_lists)),
         exists (select 1 from sluice.taker t where t.alive_until > v_now) into v_reserved, v_takers;
  -- This comes before reservations are subtracted, because it computes the room of pools anew.
  if v_takers then v_rooms := engine.units_left_for_jobs(v_rooms, v_now); end if;
  if v_reserved then
    v_kept := array(
      select coalesce((
        select sum(r.need) from sluice.reservation r
        where r.bucket = b and r.lane <> all (p_lanes) and r.until > v_now and not exists (
          select 1 from sluice.reservation o
          where o.bucket = b and o.lane = any (p_lanes) and (o.since, o.lane) < (r.since, r.lane))), 0)::bigint
      from unnest(p_lists) with ordinality u (b, o) order by o);
    foreach v_room in array v_rooms[:cardinality(p_buckets)] loop
      v_room.avail := greatest(0, v_room.avail - v_kept[v_room.ord]);
      v_room.units := greatest(0, v_room.units - v_kept[v_room.ord]);
      v_rooms[v_room.ord] := v_room;
    end loop;
    v_result.first := array(
      select l.o::integer from unnest(p_lanes) with ordinality l (id, o)
      join sluice.reservation r on r.bucket = any (p_lists) and r.lane = l.id
      group by l.o order by min(r.since), l.o);
  end if;
  v_result.rooms := v_rooms;
  return v_result;
end $$;

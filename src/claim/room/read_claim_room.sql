-- Reads what buckets allow, by position, under their locks; it reads the clock once, after the locks. Before that, new
-- definitions take effect (`engine.renew_bucket_states`). Units reserved for other lanes
-- (`engine.count_reserved_units`), and units that waiting takers have the turn for (`engine.units_left_for_jobs`), are
-- left out.
-- p_buckets, p_members: the buckets, locked by the caller, and the members of the pools among them
-- p_lists: p_buckets under the names that lanes use
-- p_lanes: the lanes that are served
-- p_cap: as in `engine.claim_jobs`
-- now_us: the time of the decision, in microseconds
-- at: what the store's clock shows then
-- avail, units, places, most, life: as in `engine.bucket_room`, for each bucket
-- probing: the vendor has refused requests of a bucket that may grant one now (`engine.refuse_buckets`)
-- rooms: what `engine.bucket_room` returned, from which `engine.append_ledger` goes on
create or replace function engine.read_claim_room(
  p_buckets bigint[], p_members bigint[], p_lists bigint[], p_lanes bigint[], p_cap bigint,
  out now_us bigint, out at timestamptz, out avail bigint[], out units bigint[], out places bigint[], out most bigint[],
  out life bigint[], out rooms engine.room[], out probing boolean) language plpgsql as $$
declare
  v_count integer := cardinality(p_buckets);
  v_room engine.room;
  v_stale boolean;
  v_kept bigint[];
  v_held boolean;   -- units are reserved for lanes
  v_asked boolean;  -- takers wait
begin
  for round in 1 .. 2 loop
    rooms := engine.bucket_room(p_buckets || p_members, null, p_cap => p_cap);
    now_us := coalesce(rooms[1].read_at, engine.limiter_now_us(p_cap));
    v_stale := false; probing := false; avail := '{}'; units := '{}'; places := '{}'; most := '{}'; life := '{}';
    foreach v_room in array rooms loop
      avail := avail || v_room.avail; units := units || v_room.units; places := places || v_room.places;
      most := most || v_room.most; life := life || v_room.life; v_stale := v_stale or v_room.stale;
      probing := probing or v_room.probe > 0 and v_room.avail > 0;
    end loop;
    exit when v_stale is not true or round = 2;
    perform engine.renew_bucket_states(p_buckets || p_members);
  end loop;
  at := case when rooms[1].now_at - rooms[1].wall is null then engine.store_time(now_us)
        else to_timestamp((now_us - (rooms[1].now_at - rooms[1].wall)) / 1e6) end;
  if p_members <> '{}' then
    avail := avail[:v_count];
    units := units[:v_count];
    places := places[:v_count];
    rooms := rooms[:v_count];
  end if;
  select exists (select 1 from sluice.reservation r where r.bucket = any (p_lists)),
         exists (select 1 from sluice.taker t where t.alive_until > read_claim_room.now_us) into v_held, v_asked;
  if v_held then
    v_kept := engine.count_reserved_units(p_lists, p_lanes, now_us);
    avail := array(select greatest(0, a - k) from unnest(avail, v_kept) with ordinality u (a, k, o) order by o);
    units := array(select greatest(0, a - k) from unnest(units, v_kept) with ordinality u (a, k, o) order by o);
  end if;
  if v_asked then
    avail := engine.units_left_for_jobs(p_buckets, avail, now_us);
    units := engine.units_left_for_jobs(p_buckets, units, now_us);
    places := engine.units_left_for_jobs(p_buckets, places, now_us, true);
  end if;
end $$;

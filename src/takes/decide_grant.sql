-- Decides and charges one grant of several buckets. No other function grants units outside of claims
-- (takes/acquire_grants.sql calls it). A running job only needs units, because its places are counted already. A taker
-- lets earlier takers go first, unless there is room for both. It takes turns with jobs that wait for the same bucket,
-- and takes a place in each bucket that counts places. Earlier takers that wait only for other buckets do not count.
-- The caller has locked the buckets.
-- p_taker: the taker, its place in the line, and what is before it there (`engine.count_earlier_takers`); without a
-- holder: a running job.
-- p_since: an earlier grant under this id was made at this time or later. It is looked for in the newest 1,000 rows of
-- the first bucket only, unless the grant was requested before.
-- units: what the grant costs in each bucket.
-- lacking: whether each bucket, taken alone, denies the grant to a taker. Null: it was granted.
-- ahead_us, early_us: as in takes/acquire_grants.sql, and in engine.grant_taker_ahead.
-- on_trial: the vendor has refused requests of one of the buckets (engine.refuse_buckets).
-- Other parameters: takes/acquire_grants.sql.
create or replace function engine.decide_grant(
  p_grant uuid, p_buckets bigint[], p_units bigint[], p_taker engine.taker, p_since bigint, p_now bigint,
  out granted boolean, out lost boolean, out soonest_us bigint, out capacity bigint, out life_us bigint,
  out fresh_us bigint, out units bigint[], out lacking boolean[], out on_trial boolean, out ahead_us bigint,
  out early_us bigint)
language plpgsql as $$
declare
  v_is_job constant boolean := p_taker.holder is null;
  v_rooms engine.room[] := engine.bucket_room(p_buckets, p_now, v_is_job);
  v_needs bigint[];    -- units that must be free: this grant's and those of earlier takers
  v_places bigint[];
  v_counted bigint[];  -- buckets in which the taker takes a place
  v_is_shut boolean;
  v_vacant bigint[];   -- the bucket of each place that a lost process had
  v_before bigint;
  v_ahead record;
begin
  lost := false; ahead_us := 0; early_us := 0;
  v_before := engine.granted_for(p_grant, p_buckets[1], p_since, p_now - p_taker.requested_ago - 1000000);
  granted := v_before is not null or exists (select 1 from sluice.lease l where l.id = p_grant);
  select array_agg(u.units order by r.ord), array_agg(greatest(u.units, v_is_job::integer) + b.units order by r.ord),
         array_agg(1 + b.takers order by r.ord), min(r.most) filter (where u.units > r.most and not v_is_job),
         array_agg(r.bucket) filter (where 'concurrency' = any (r.kind) and not v_is_job),
         min(r.life) filter (where 'concurrency' <> any (r.kind)), bool_or(r.version is null), bool_or(r.trial_us > 0)
    into units, v_needs, v_places, capacity, v_counted, fresh_us, v_is_shut, on_trial
  from unnest(v_rooms) r
  cross join lateral (
    select case when 'concurrency' = all (r.kind) and not v_is_job then 1 else p_units[r.ord] end as units) u
  cross join lateral (
    select coalesce(p_taker.units[r.ord], 0) as units, coalesce(p_taker.earlier[r.ord], 0) as takers) b;
  if v_is_shut and not (granted and v_is_job) then perform engine.refuse_parked_buckets(p_buckets); end if;
  if granted then
    fresh_us := least(fresh_us, engine.least_life(p_buckets)); ahead_us := greatest(v_before - p_now, 0); end if;
  if granted and v_counted is not null then
    select h.alive_until - p_now into life_us from sluice.lease l join sluice.holder h on h.id = l.holder
    where l.id = p_grant and h.alive_until > p_now limit 1;
    lost := life_us is null;
  elsif not granted then
    if exists (select 1 from unnest(v_rooms) r where r.places < v_places[r.ord]) then
      v_vacant := engine.vacate_places(p_buckets, p_now);
      if v_vacant is not null then v_rooms := engine.bucket_room(p_buckets, p_now); end if;
    end if;
    lacking := array(
      select (r.units >= v_needs[r.ord] and r.places >= v_places[r.ord] and r.hold <= r.now_at
        and (v_is_job or r.next < 9007199254740991) and r.version is not null) is false
      from unnest(v_rooms) r order by r.ord);
    soonest_us := 0;
    if true = any (lacking) then
      soonest_us := engine.soonest_room(p_buckets, v_needs, v_places, v_is_job, p_now);
      if v_is_job then perform engine.record_denied_shares(array_agg(d), array_agg(u), p_now)
                       from unnest(p_buckets) d, unnest(p_buckets) u; end if;
    elsif not v_is_job then
      lacking := array(
        select engine.jobs_due_at(b, p_now) is not null and engine.jobs_have_turn(b)
        from unnest(p_buckets) with ordinality u (b, o) order by o);
    end if;
    granted := true <> all (lacking);
    if not granted and not v_is_job and cardinality(v_rooms) = 1 then
      v_ahead := engine.grant_taker_ahead(p_taker, v_rooms[1], units[1], soonest_us, p_now);
      early_us := v_ahead.early_us; granted := (v_ahead.room).bucket is not null;
      if granted then v_rooms[1] := v_ahead.room; ahead_us := (v_ahead.room).now_at - p_now; end if; end if;
    if granted and v_counted is not null then
      life_us := engine.take_places(p_grant, v_counted, p_taker, p_now);
      lost := life_us is null; end if;
    if granted and not lost then
      perform engine.append_ledger(v_rooms, p_grant, units,
        case when not v_is_job then array_fill(1::bigint, array[cardinality(p_buckets)]) end,
        p_instants => case when ahead_us > 0 then array[p_now + ahead_us] end); end if;
    -- After the lease, by the order of locks: docs/architecture.md, "Locks".
    if v_vacant is not null then
      perform engine.make_lists_due(v_vacant, array_fill(1::bigint, array[cardinality(v_vacant)]), p_now); end if;
  end if;
  granted := granted and not lost;
end $$;

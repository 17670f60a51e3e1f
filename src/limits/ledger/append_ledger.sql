-- Appends one ledger row to each of these buckets; nothing else inserts ledger rows. The row is the state that
-- engine.bucket_room found, after what was granted, given back or used since. Leaves out pools, and buckets without a
-- definition. The caller has locked the buckets.
-- p_rooms: what engine.bucket_room returned.
-- p_claim: id of the grant, or of the claim of several jobs; null: the row's units cannot be given back.
-- p_units: units granted from each bucket, by its place in the call of engine.bucket_room (ord); negative: given back.
-- Null: none.
-- p_places: jobs that begin, in the same order, which is what concurrency counts; negative: jobs that end. Null: none.
-- p_when: time of the grant that turned out to use more, or fewer, units; null: the units are granted now.
-- p_least: debt of each rule below which a refund does not go; null: 0.
-- p_cause: why a held bucket is held, as in engine.hold_buckets; `others`: the units are what others have used
-- (engine.charge_others); `again`: they are charged once more (engine.charge_again), which quotas do not count;
-- `denied`: a job of a share was denied (engine.record_denied_shares).
-- p_instants: when each unit may be used (engine.grant_ahead); null: at the row's time.
-- p_ords: the bucket of each of p_instants, by its place; null: all of them are instants of every bucket.
create or replace function engine.append_ledger(
  p_rooms engine.room[], p_claim uuid default null, p_units bigint[] default null, p_places bigint[] default null,
  p_when bigint default null, p_least bigint[] default null, p_cause text default null,
  p_instants bigint[] default null, p_ords integer[] default null)
returns void language plpgsql as $$
declare
  v_most constant bigint := 2305843009213693952;  -- use beyond a grant may owe more than a bucket holds
  v_rooms engine.room[] := '{}';
  v_room engine.room;
  v_units bigint;
  v_times bigint;
begin
  foreach v_room in array coalesce(p_rooms, '{}') loop
    continue when v_room.version is null;
    v_units := coalesce(p_units[v_room.ord], 0);
    for i in 1 .. cardinality(v_room.kind) loop
      v_times := v_most / v_room.weight[i] + 1;
      v_room.debt[i] := case when v_room.kind[i] = 'concurrency'
        then greatest(0, v_room.debt[i] + coalesce(p_places[v_room.ord], 0) * v_room.weight[i])
        else least(v_most, greatest(coalesce(p_least[i], 0),
          v_room.debt[i] + v_room.weight[i] * greatest(-v_times, least(v_times, v_units)))) end;
    end loop;
    if v_room.parts is not null then
      v_room.parts := engine.count_in_windows(
        v_room.parts, v_room.kind, v_room.part_us, v_room.now_at, coalesce(p_when, v_room.now_at), v_units); end if;
    if v_room.quota is not null then
      v_room.quota := engine.count_in_quotas(v_room.quota, v_room.kind, v_room.margin,
        case when p_when is null then v_room.wall else p_when - engine.clock_offset_at(p_when) end,
        case when p_cause = 'again' then 0 else v_units end); end if;
    if v_room.trial_us > 0 and p_when is null and (v_units > 0 or p_places[v_room.ord] > 0) then
      v_room.hold := greatest(v_room.hold, v_room.now_at + v_room.trial_us); end if;
    v_rooms := v_rooms || v_room;
  end loop;
  insert into sluice.ledger (bucket, n, at, debt, parts, quota, version, units, earlier, hold, claim, cause, trial_us)
  select r.bucket, r.n + 1, r.now_at, r.debt, r.parts, r.quota, r.version, coalesce(p_units[r.ord], 0),
         case when p_instants is not null then array(
           select r.now_at - i from unnest(p_instants, p_ords) with ordinality u (i, b, o)
           where b is null or b = r.ord order by o) end,
         r.hold, p_claim, p_cause, r.trial_us
  from unnest(v_rooms) r;
end $$;

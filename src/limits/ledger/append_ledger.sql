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
-- (engine.charge_others).
create or replace function engine.append_ledger(
  p_rooms engine.room[], p_claim uuid default null, p_units bigint[] default null, p_places bigint[] default null,
  p_when bigint default null, p_least bigint[] default null, p_cause text default null)
returns void language plpgsql as $$
declare
  v_most constant bigint := 2305843009213693952;  -- use beyond a grant may owe more than a bucket holds
begin
  insert into sluice.ledger (bucket, n, at, debt, slots, quota, version, units, hold, claim, cause, probe)
  select r.bucket, r.n + 1, r.now_at,
         array(select case when u.kind = 'concurrency' then greatest(0, u.debt + g.places * u.weight)
                 else least(v_most, greatest(coalesce(p_least[u.i], 0),
                   u.debt + u.weight * greatest(-(v_most / u.weight + 1), least(v_most / u.weight + 1, g.units)))) end
               from unnest(r.debt, r.kind, r.weight) with ordinality u (debt, kind, weight, i) order by u.i),
         engine.count_in_windows(r.slots, r.kind, r.slot, r.now_at, coalesce(p_when, r.now_at), g.units),
         engine.count_in_quotas(r.quota, r.kind, r.margin,
           case when p_when is null then r.wall else p_when - engine.clock_lead_at(p_when) end, g.units),
         r.version, g.units, case when g.begins then greatest(r.hold, r.now_at + r.probe) else r.hold end, p_claim,
         p_cause, r.probe
  from unnest(p_rooms) r
  cross join lateral (select coalesce(p_units[r.ord], 0) as units, coalesce(p_places[r.ord], 0) as places,
      r.probe > 0 and p_when is null and (p_units[r.ord] > 0 or p_places[r.ord] > 0) is true as begins) g
  where r.version is not null;
end $$;

-- Appends the next ledger row of buckets: the only place that does. Call under lock; what is appended is the state that
-- room found, after what has been granted, given back or used since. Buckets without a definition, and pools, are left
-- out.
-- p_rooms: what room found.
-- p_claim: the grant, or the claim of several; null: nobody gives it back.
-- p_units: units granted of each bucket, by its place in the call of room (ord); negative: given back. Null: none.
-- p_places: jobs that begin, in the same order, which is what concurrency counts; negative: that end. Null: none.
-- p_when: the time of the grant that has used more, or fewer; null: it is granted now.
-- p_least: the debt of each rule that a refund leaves at least; null: 0.
create or replace function engine.append_ledger(
  p_rooms engine.room[], p_claim uuid default null, p_units bigint[] default null, p_places bigint[] default null,
  p_when bigint default null, p_least bigint[] default null)
returns void language plpgsql as $$
declare
  v_most constant bigint := 2305843009213693952;  -- what was used beyond a grant may owe more than a bucket holds
begin
  insert into sluice.ledger (bucket, n, at, debt, slots, quota, version, units, hold, claim)
  select r.bucket, r.n + 1, r.now_at,
         array(select case when u.kind = 'concurrency' then greatest(0, u.debt + g.places * u.weight)
                 else least(v_most, greatest(coalesce(p_least[u.i], 0),
                   u.debt + u.weight * greatest(-(v_most / u.weight + 1), least(v_most / u.weight + 1, g.units)))) end
               from unnest(r.debt, r.kind, r.weight) with ordinality u (debt, kind, weight, i) order by u.i),
         engine.counted(r.slots, r.kind, r.slot, r.now_at, coalesce(p_when, r.now_at), g.units),
         engine.spend(r.quota, r.kind, r.margin,
           case when p_when is null then r.wall else p_when - engine.advance(p_when) end, g.units),
         r.version, g.units, r.hold, p_claim
  from unnest(p_rooms) r
  cross join lateral (select coalesce(p_units[r.ord], 0) as units, coalesce(p_places[r.ord], 0) as places) g
  where r.version is not null;
end $$;

-- Charges granted units to buckets: appends each bucket's next ledger row. Call under lock, at the time that
-- room was asked with; p_units[i] belongs to p_buckets[i]. p_places: how many jobs they are for, which is what
-- concurrency counts (null: as many as units). Buckets with neither are left out. p_further: room; it leaves none out,
-- for a grant is known again by its rows. p_rooms: what room said of p_buckets then; null: it is asked.
create or replace function engine.charge(
  p_claim uuid, p_now bigint, p_buckets bigint[], p_units bigint[], p_places integer[] default null, p_further boolean default false,
  p_rooms engine.room[] default null)
returns void language plpgsql as $$
begin
  if p_rooms is null then p_rooms := array(select r::engine.room from engine.room(p_buckets, p_now) r order by r.ord); end if;
  insert into sluice.ledger (bucket, n, at, debt, slots, quota, version, units, hold, claim)
  select r.bucket, r.n + 1, r.now_at,
         array(select u.debt + case when u.drain > 0 then p_units[r.ord] * u.weight when p_further then 0
                                    else coalesce(p_places[r.ord], p_units[r.ord]) * u.weight end
               from unnest(r.debt, r.drain, r.weight) with ordinality u (debt, drain, weight, i) order by i),
         engine.counted(r.slots, r.slot, r.now_at, r.now_at, p_units[r.ord]), engine.spend(r.quota, r.margin, r.wall, p_units[r.ord]), r.version, p_units[r.ord], r.hold, p_claim
  from unnest(p_rooms) r
  where (p_units[r.ord] > 0 or p_places[r.ord] > 0 or p_further) and r.version is not null;
end $$;

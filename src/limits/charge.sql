-- Charges granted units to buckets: appends each bucket's next ledger row. Call under lock_v1, at the time that
-- room_v1 was asked with; p_units[i] belongs to p_buckets[i], zeros are left out. p_further: room_v1.
create or replace function sluice.charge_v1(
  p_claim uuid, p_now bigint, p_buckets bigint[], p_units integer[], p_further boolean default false)
returns void language plpgsql as $$
begin
  insert into sluice.ledger (bucket, n, at, debt, slots, quota, version, units, hold, claim)
  select r.bucket, r.n + 1, r.now_at,
         array(select u.debt + case when p_further and u.drain = 0 then 0 else p_units[r.ord] * u.weight end
               from unnest(r.debt, r.drain, r.weight) with ordinality u (debt, drain, weight, i) order by i),
         sluice.counted_v1(r.slots, r.slot, r.now_at, r.now_at, p_units[r.ord]), sluice.spend_v1(r.quota, r.margin, r.now_at, p_units[r.ord]), r.version, p_units[r.ord], r.hold, p_claim
  from sluice.room_v1(p_buckets, p_now) r
  where p_units[r.ord] > 0 and r.version is not null;
end $$;

-- Charges granted units to buckets: appends each bucket's next ledger row. Call under lock_v1, at the time that
-- room_v1 was asked with; p_units[i] belongs to p_buckets[i], zeros are left out.
create or replace function sluice.charge_v1(p_claim uuid, p_now bigint, p_buckets bigint[], p_units integer[])
returns void language plpgsql as $$
begin
  insert into sluice.ledger (bucket, n, at, debt, version, units, hold, claim)
  select r.bucket, r.n + 1, r.now_at,
         array(select d + p_units[r.ord] * w from unnest(r.debt, r.weight) with ordinality u (d, w, i) order by i),
         r.version, p_units[r.ord], r.hold, p_claim
  from sluice.room_v1(p_buckets, p_now) r
  where p_units[r.ord] > 0 and r.version is not null;
end $$;

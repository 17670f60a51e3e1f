-- The vendor asked for silence: no grant from these buckets for p_us microseconds from now. Only ever lengthens a hold.
create or replace function sluice.hold_v1(p_buckets bigint[], p_us bigint) returns void language plpgsql as $$
declare
  v_now bigint;
begin
  perform sluice.lock_v1(p_buckets);
  v_now := sluice.now_us();
  insert into sluice.ledger (bucket, n, at, debt, version, units, hold)
  select r.bucket, r.n + 1, r.now_at, r.debt, r.version, 0, v_now + p_us
  from sluice.room_v1(p_buckets, v_now) r
  where r.version is not null and r.hold < v_now + p_us;
end $$;

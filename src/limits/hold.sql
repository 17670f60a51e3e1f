-- The vendor asked for silence: no grant from these buckets for p_us microseconds from now. Only ever lengthens a hold.
-- Counted from the bucket's own time: after a step back of the clock a hold must not be over before it began. p_cap: the
-- latest time that the caller's monotonic clock allows the store's clock to show (null: unknown).
create or replace function engine.hold(p_buckets bigint[], p_us bigint, p_cap bigint) returns void language plpgsql as $$
declare
  v_now bigint;
begin
  perform engine.lock(p_buckets);
  v_now := engine.limiter_us(p_cap);
  insert into sluice.ledger (bucket, n, at, debt, slots, quota, version, units, hold)
  select r.bucket, r.n + 1, r.now_at, r.debt, r.slots, r.quota, r.version, 0, r.now_at + p_us
  from engine.room(p_buckets, v_now) r
  where r.version is not null and r.hold < r.now_at + p_us;
end $$;

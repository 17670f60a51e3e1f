-- Writes the state of buckets that have a new definition since: made anew from the ledger, which takes a while where it is
-- long, so once, and before the clock is read. Call under lock. Returns whether there were such.
create or replace function engine.renew(p_buckets bigint[]) returns boolean language plpgsql as $$
begin
  insert into sluice.ledger (bucket, n, at, debt, slots, quota, version, units, hold)
  select r.bucket, r.n + 1, r.now_at, r.debt, r.slots, r.quota, r.version, 0, r.hold from engine.room(p_buckets, 0) r where r.stale;
  return found;
end $$;

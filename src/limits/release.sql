-- Gives back places of concurrency rules: so many of each bucket's jobs have ended. Other buckets are left alone. At the
-- bucket's own time, so no step of the clock gets in. Call under lock.
create or replace function engine.release(p_buckets bigint[], p_units integer[]) returns void language plpgsql as $$
begin
  insert into sluice.ledger (bucket, n, at, debt, slots, quota, version, units, hold)
  select r.bucket, r.n + 1, r.now_at,
         array(select case when u.drain = 0 then greatest(0, u.debt - p_units[r.ord] * u.weight) else u.debt end
               from unnest(r.debt, r.drain, r.weight) with ordinality u (debt, drain, weight, i) order by i),
         r.slots, r.quota, r.version, 0, r.hold
  from engine.room(p_buckets, 0) r where 0 = any (r.drain);
end $$;

-- Sets how many jobs of a bucket run, where its concurrency was not counted before. Call under lock.
create or replace function engine.running(p_buckets bigint[], p_running integer[]) returns void language plpgsql as $$
begin
  insert into sluice.ledger (bucket, n, at, debt, slots, quota, version, units, hold)
  select r.bucket, r.n + 1, r.now_at,
         array(select case when u.drain = 0 then p_running[r.ord] * u.weight else u.debt end
               from unnest(r.debt, r.drain, r.weight) with ordinality u (debt, drain, weight, i) order by i),
         r.slots, r.quota, r.version, 0, r.hold
  from engine.room(p_buckets, 0) r where r.version is not null;
end $$;

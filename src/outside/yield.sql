-- Ends grants outside of jobs: their places, and where they were not used (p_unused) their units. Idempotent. p_takes:
-- the names of their buckets; null: the answer was lost, so only its place is known here, and what it cost stays
-- charged, because a request may have been made.
create or replace function engine.yield(p_grants uuid[], p_takes text[], p_unused boolean[]) returns void
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '1s'
as $$
declare
  v_buckets bigint[] := array(
    select coalesce(sluice.hash64(u.take), l.bucket) from unnest(p_grants, p_takes) with ordinality u (id, take, o)
    left join sluice.lease l on l.id = u.id order by u.o);
  v_now bigint;
begin
  perform engine.lock_to_give(array_remove(v_buckets, null));
  v_now := engine.limiter_us();
  perform engine.untake(u.id, u.bucket, u.unused, v_now)
  from unnest(p_grants, v_buckets, p_unused) u (id, bucket, unused) where u.bucket is not null;
end $$;

-- Writes the state of buckets that a claim found stale (engine.renew_bucket_states), under their locks. The claim is
-- repeated after it.
-- p_buckets: their ids.
create or replace function engine.renew_buckets(p_buckets bigint[], p_cap bigint default null) returns void
language plpgsql set enable_seqscan = off set jit = off set lock_timeout = '1s' as $$
begin
  perform engine.lock_buckets(p_buckets), engine.renew_bucket_states(p_buckets, p_cap);
end $$;

-- Writes the state of buckets that a claim found to have a new definition (engine.renew_bucket_states), under their
-- locks. The claim is repeated after it.
-- p_buckets: their ids.
create or replace function engine.renew_buckets(p_buckets bigint[]) returns void
language plpgsql set enable_seqscan = off set jit = off set lock_timeout = '1s' as $$
begin
  perform engine.lock_buckets(p_buckets), engine.renew_bucket_states(p_buckets);
end $$;

-- Ends grants outside of jobs: their places, and where they were not used (p_unused) their units. Idempotent.
create or replace function engine.yield(p_grants uuid[], p_takes text[], p_unused boolean[]) returns void
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '1s' as $$
declare
  v_now bigint;
begin
  perform engine.lock_to_give(array(select sluice.hash64(t) from unnest(p_takes) t));
  v_now := engine.limiter_us();
  perform engine.untake(u.id, sluice.hash64(u.take), u.unused, v_now) from unnest(p_grants, p_takes, p_unused) u (id, take, unused);
end $$;

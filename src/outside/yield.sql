-- Ends grants outside of jobs: their places, and where they were not used (p_unused) their units. Idempotent.
create or replace function sluice.yield_v1(p_grants uuid[], p_takes text[], p_unused boolean[]) returns void
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '1s' as $$
declare
  v_now bigint;
begin
  perform sluice.lock_v1(array(select sluice.hash64(t) from unnest(p_takes) t));
  v_now := sluice.limiter_us();
  perform sluice.untake_v1(u.id, sluice.hash64(u.take), u.unused, v_now) from unnest(p_grants, p_takes, p_unused) u (id, take, unused);
end $$;

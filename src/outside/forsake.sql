-- Gives back the places of grants whose answers were lost. What they cost stays charged: a request may have been made.
create or replace function engine.forsake(p_grants uuid[]) returns void language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_lease record;
  v_now bigint;
begin
  perform engine.lock_to_give(array(select bucket from sluice.lease where id = any (p_grants)));
  v_now := engine.limiter_us();
  for v_lease in select id, bucket from sluice.lease where id = any (p_grants) loop
    perform engine.untake(v_lease.id, v_lease.bucket, false, v_now);
  end loop;
end $$;

-- Ends grants of takers: frees their places, and refunds the units that were not used. A second call does nothing.
-- p_grants: the grants, one for each bucket.
-- p_buckets: the names of their buckets. Null: the reply of the grant was lost, so only its places are known. The units
-- stay charged, because a request may have been made.
-- p_units: unused units of each.
create or replace function engine.end_takes(p_grants uuid[], p_buckets text[], p_units bigint[]) returns void
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '1s'
as $$
declare
  v_grants uuid[];
  v_buckets bigint[];
  v_units bigint[];
begin
  select array_agg(u.id), array_agg(u.bucket), array_agg(u.units) into v_grants, v_buckets, v_units
  from (select u.id, coalesce(sluice.hash64(u.take), l.bucket) as bucket, u.units
        from unnest(p_grants, p_buckets, p_units) u (id, take, units)
        left join sluice.lease l on l.id = u.id and u.take is null) u where u.bucket is not null;
  if v_buckets is null then return; end if;
  perform engine.lock_buckets_and_pools(v_buckets);
  perform engine.give_back_grants(v_grants, v_buckets, v_units);
  perform engine.make_lists_due(v_buckets, array(select greatest(1, u) from unnest(v_units) u),
    engine.limiter_now_us());
end $$;

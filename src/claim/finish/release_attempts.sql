-- Releases what ending attempts hold: places of concurrency rules and, where no call was made, grants. Then it makes
-- the lists that wait for this room due. It locks all of the jobs in the order of seq, so that the second of two equal
-- requests finds nothing, and no job is waited for once buckets are locked. Jobs come before buckets because a claim
-- never waits for a running job.
-- p_ids: the jobs.
-- p_claims: the claim that handed out each job.
-- p_unused: no call was made.
-- p_kept: the bucket that keeps what the job was charged all the same, because others used it up. Null: none.
create or replace function engine.release_attempts(p_ids uuid[], p_claims uuid[], p_unused boolean[],
  p_kept text[] default null)
returns void language plpgsql as $$
declare
  v_counted text[] := engine.lock_definitions();
  v_buckets bigint[];
  v_of uuid[];
  v_units bigint[];
  v_places integer[];
  v_backs boolean[];
  v_now bigint;
begin
  with mine as (
    select j.claim, coalesce(j.charged_buckets, j.buckets) as buckets, j.costs, u.unused, u.kept from sluice.job j
    join unnest(p_ids, p_claims, p_unused, p_kept) u (id, claim, unused, kept) on j.id = u.id and j.claim = u.claim
    order by j.seq for update of j
  ), held as (
    select b.id, m.claim, m.unused
      and b.t is distinct from m.kept as unused, sum(b.cost)::bigint as units, count(*)::integer as places
    from mine m cross join lateral (
      select t, sluice.hash64(t) as id, coalesce(cost, 1) as cost from unnest(m.buckets, m.costs) u (t, cost)
      where t is not null and (m.unused or split_part(t, ':', 1) = any (v_counted))) b
    group by 1, 2, 3
  )
  select array_agg(id), array_agg(claim), array_agg(units), array_agg(places), array_agg(unused)
  into v_buckets, v_of, v_units, v_places, v_backs from held;
  if v_buckets is null then return; end if;
  perform engine.lock_buckets_and_pools(v_buckets);
  v_now := engine.limiter_now_us();
  perform engine.refund_units(u.bucket, u.claim, u.units, p_unused => true)
    from unnest(v_buckets, v_of, v_units, v_backs) u (bucket, claim, units, back) where u.back;
  select array_agg(u.bucket), array_agg(u.units), array_agg(u.places) into v_buckets, v_units, v_places
  -- An attempt that used its units frees a place for one other job, whatever it cost.
  from (select bucket, sum(case when back then greatest(units, places) else places end)::bigint as units,
               sum(places)::integer as places
        from unnest(v_buckets, v_units, v_places, v_backs) u (bucket, units, places, back) group by 1) u;
  perform engine.release_places(v_buckets, v_places);
  -- A separate statement, which sees what was released.
  perform engine.make_lists_due(v_buckets, v_units, v_now);
end $$;

-- Grants units of several buckets outside of claims, all or none: to a running job for a further request, or to a
-- taker. It is one autocommitted statement. It charges a grant once, however often it is repeated, and charges nothing
-- when it denies.
-- p_grant: id of the grant; a UUID of version 4 for a taker (limits/takers/jobs_have_turn.sql).
-- p_buckets: names of the buckets.
-- p_units: units of each bucket. A taker is charged one unit of a bucket that counts only places.
-- p_back: an unused grant to give back first. Null: none.
-- p_back_units: units of each bucket to give back (`engine.give_back_grants`).
-- p_job, p_claim: the running job and its claim; null for a taker.
-- p_taker: JSON with the fields of engine.taker; null for a job.
-- granted: all units are charged.
-- lost: the job was rescued or cancelled, or the taker's process was given up and must return under another id.
-- wait_us: microseconds until the next try. Null: it was granted or lost, or exceeds a capacity.
-- soonest_us: microseconds until there can be room. 0: there is room, but it is the jobs' turn; 2^53 - 1: not by time.
-- capacity: a bucket's capacity when the request exceeds it; then a taker does not wait. Null: nothing is exceeded.
-- now_us: the limiter clock when it decided; waited_us: microseconds that it waited for the buckets before.
-- life_us: microseconds for which the taker's places last. Null: it has none.
-- n: the place in the line that the taker had until it was granted.
-- fresh_us: microseconds within which a request may begin under the grant. Null: the buckets count only places.
-- lacking: whether each bucket denied it. Null: it was granted.
-- probing: as in engine.decide_grant.
create or replace function engine.acquire_grant(
  p_grant uuid, p_buckets text[], p_units bigint[], p_back uuid, p_back_units bigint[], p_cap bigint,
  p_job uuid default null, p_claim uuid default null, p_taker jsonb default null,
  out granted boolean, out lost boolean, out wait_us bigint, out soonest_us bigint, out capacity bigint,
  out now_us bigint, out waited_us bigint, out life_us bigint, out n bigint, out fresh_us bigint,
  out redis_epoch text, out lacking boolean[], out probing boolean)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
set lock_timeout = '1s' as $$
declare
  v_buckets constant bigint[] := array(
    select sluice.hash64(t) from unnest(p_buckets) with ordinality u (t, o) order by o);
  v_taker engine.taker := jsonb_populate_record(null::engine.taker, p_taker);
  v_since bigint;
  v_begun bigint;
begin
  -- This comes before the buckets are locked, as in a claim.
  if (select server_at from sluice.epoch) is distinct from pg_postmaster_start_time() then
    perform engine.check_epoch(null, null, null); end if;
  redis_epoch := engine.lock_redis_epoch();
  granted := false;
  lost := false;
  v_begun := engine.limiter_now_us(p_cap);
  now_us := v_begun;
  if p_taker is null then
    -- The job's grants are no older than its claim.
    select coalesce(c.at, 0) into v_since
    from sluice.job j left join sluice.claim c on c.id = j.claim where j.id = p_job and j.claim = p_claim;
    lost := not found;
    if lost then return; end if;
  else
    v_taker.n := coalesce((select t.n from sluice.taker t where t.id = v_taker.line limit 1), v_taker.n);
    perform engine.make_buckets(p_buckets);
  end if;
  perform engine.lock_buckets_and_pools(v_buckets);
  perform engine.renew_bucket_states(v_buckets, p_cap);
  now_us := engine.limiter_now_us(p_cap);
  waited_us := greatest(now_us - v_begun, 0);
  if p_back is not null then
    perform engine.give_back_grants(array_fill(p_back, array[cardinality(v_buckets)]), v_buckets, p_back_units);
  end if;
  select a.granted, a.lost, a.soonest_us, a.capacity, a.life_us, a.fresh_us, a.units, a.lacking, a.probing
    into granted, lost, soonest_us, capacity, life_us, fresh_us, p_units, lacking, probing
  from engine.decide_grant(
    p_grant, v_buckets, p_units, v_taker, coalesce(v_since, now_us - 60000000), now_us) a;
  if p_back is not null then perform engine.make_lists_due(v_buckets, p_back_units, now_us); end if;
  if granted then
    n := v_taker.n;
    delete from sluice.taker t where t.id = v_taker.line;
  elsif capacity is not null and not exists (
    select 1 from unnest(p_buckets, p_units) u (bucket, units) where u.units > engine.newest_capacity(u.bucket)) then
    -- Only older code does not allow this cost. The taker waits outside of the line, so that others pass it.
    capacity := null;
    soonest_us := 1000000;
    wait_us := 1000000;
  elsif not lost and capacity is null then
    wait_us := engine.queue_taker(v_taker, v_buckets, p_units, lacking, soonest_us, now_us);
  end if;
end $$;

-- Grants units of several buckets outside of claims, all or none: to a running job for a further request, or to takers
-- that want the same. It is one autocommitted statement. It charges a grant once, however often it is repeated, and
-- charges nothing when it denies. Takers are decided in the order of the line: behind one that is denied none is
-- granted anything.
-- p_wants: JSON, the fields of engine.taker for each grant; of a job one grant, with id, requested_ago, back and
-- back_units.
-- p_buckets: names of the buckets.
-- p_units: units of each bucket. A taker is charged one unit of a bucket that counts only places.
-- p_job, p_claim: the running job and its claim; null for takers.
-- ord: the place in p_wants.
-- granted: all units are charged.
-- lost: the job was rescued or cancelled, or the taker's process was given up and must return under another id.
-- wait_us: microseconds until the next try. Null: it was granted or lost, or exceeds a capacity.
-- soonest_us: microseconds until there can be room. 0: there is room, but it is the jobs' turn; 2^53 - 1: not by time.
-- capacity: a bucket's capacity when the request exceeds it; then a taker does not wait. Null: nothing is exceeded.
-- now_us: the limiter clock when it decided; waited_us: microseconds that it waited for the buckets before.
-- life_us: microseconds for which the taker's places last. Null: it has none.
-- n: the taker's place in the line; the one that it had, if it was granted. Null: it has none.
-- fresh_us: microseconds within which a request may begin under the grant. Null: the buckets count only places.
-- lacking: whether each bucket denied it. Null: it was granted.
-- on_trial: as in engine.decide_grant.
-- ahead_us: microseconds from now_us until the grant may be used (engine.grant_taker_ahead); 0: at once.
create or replace function engine.acquire_grants(
  p_wants jsonb, p_buckets text[], p_units bigint[], p_cap bigint, p_job uuid default null, p_claim uuid default null)
returns table (
  ord integer, granted boolean, lost boolean, wait_us bigint, soonest_us bigint, capacity bigint, now_us bigint,
  waited_us bigint, life_us bigint, n bigint, fresh_us bigint, redis_epoch text, lacking boolean[], on_trial boolean,
  ahead_us bigint)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
set lock_timeout = '1s' as $$
declare
  v_buckets constant bigint[] := array(
    select sluice.hash64(t) from unnest(p_buckets) with ordinality u (t, o) order by o);
  v_takers engine.taker[];
  v_taker engine.taker;
  v_gone uuid[] := '{}';  -- lines of the takers that were granted
  v_stays uuid[] := '{}';  -- lines of those that were not
  v_queues boolean := false;  -- one was denied
  v_since bigint;
  v_begun bigint;
  v_units bigint[];
  v_early bigint;
begin
  -- This comes before the buckets are locked, as in a claim.
  if (select server_at from sluice.epoch) is distinct from pg_postmaster_start_time() then
    perform engine.check_epoch(null, null, null); end if;
  redis_epoch := engine.lock_redis_epoch();
  v_begun := engine.limiter_now_us(p_cap);
  now_us := v_begun;
  if p_job is not null then
    -- The job's grants are no older than its claim.
    select coalesce(c.at, 0) into v_since
    from sluice.job j left join sluice.claim c on c.id = j.claim where j.id = p_job and j.claim = p_claim;
    lost := not found;
    if lost then ord := 1; granted := false; return next; return; end if;
  else
    perform engine.make_buckets(p_buckets);
  end if;
  v_takers := engine.order_takers(p_wants);
  perform engine.lock_buckets_and_pools(v_buckets);
  perform engine.renew_bucket_states(v_buckets, p_cap);
  now_us := engine.limiter_now_us(p_cap);
  waited_us := greatest(now_us - v_begun, 0);
  foreach v_taker in array v_takers loop
    continue when v_taker.back is null;
    perform engine.give_back_grants(
      array_fill(v_taker.back, array[cardinality(v_buckets)]), v_buckets, v_taker.back_units);
  end loop;
  v_takers := engine.count_earlier_takers(v_takers, v_buckets, now_us);
  foreach v_taker in array v_takers loop
    ord := v_taker.ord; wait_us := null; n := v_taker.n;
    v_taker := engine.add_earlier_takers(v_taker, v_stays, v_buckets, now_us);
    select a.granted, a.lost, a.soonest_us, a.capacity, a.life_us, a.fresh_us, a.units, a.lacking, a.on_trial,
           a.ahead_us, a.early_us
      into granted, lost, soonest_us, capacity, life_us, fresh_us, v_units, lacking, on_trial, ahead_us, v_early
    from engine.decide_grant(
      v_taker.id, v_buckets, p_units, v_taker, coalesce(v_since, now_us - 60000000), now_us) a;
    if not (granted or lost or v_queues) then
      -- All that follow are denied, too. By the order of locks the lines are last: docs/architecture.md, "Locks".
      v_queues := true;
      perform engine.leave_lines(v_takers, v_gone, v_buckets, now_us);
    end if;
    if granted then
      v_gone := v_gone || v_taker.line;
    elsif capacity is not null and not exists (
      select 1 from unnest(p_buckets, v_units) u (bucket, units) where u.units > engine.newest_capacity(u.bucket)) then
      -- Only older code does not allow this cost. The taker waits outside of the line, so that others pass it.
      capacity := null; soonest_us := 1000000; wait_us := 1000000;
    elsif not lost and capacity is null then
      if v_taker.line is not null then
        n := coalesce(n, nextval(pg_get_serial_sequence('sluice.taker', 'n'))); v_taker.n := n; end if;
      wait_us := engine.queue_taker(v_taker, v_buckets, v_units, lacking, soonest_us, v_early, now_us);
    end if;
    if not granted and v_taker.line is not null then v_stays := v_stays || v_taker.line; end if;
    return next;
  end loop;
  perform engine.leave_lines(case when not v_queues then v_takers end, v_gone, v_buckets, now_us);
end $$;

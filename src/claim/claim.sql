-- Claims up to p_want jobs that all their limits allow now. One autocommitted statement reads what has arrived,
-- decides, charges the limits and marks the jobs, or does nothing at all. It waits for a lock for a second at most.
-- p_claim: names the claim; repeated with it after a lost reply, the call returns the same jobs.
-- p_queues, p_tasks: what the worker serves; queues null: all.
-- p_want: how many jobs; 0 plans every statement on this connection and does nothing.
-- p_cap: the latest time that the store's clock can show, by the caller's monotonic clock; null: unknown.
-- p_idle: register the worker as idle when it gets less than it wants.
-- p_since: no list and no scheduled job was due before this time, as an earlier answer said; null: unknown.
-- p_wide: look at as many lanes as a claim may, after one that found only blocked ones.
-- now_us: when it decided; waited_us: how long after its beginning.
-- wake_us: in how many microseconds to claim again; again: at once, because something was in the way; both: the
-- jobs are those of an earlier call with this id.
-- since: the p_since of the next call. jobs: handout.ts.
-- shared: the epoch under which Redis may be asked for the same; null: no limit is in Redis.
create or replace function engine.claim(
  p_claim uuid, p_worker bigint, p_queues text[], p_tasks text[], p_want integer, p_cap bigint, p_idle boolean,
  p_since bigint default null, p_wide boolean default false,
  out now_us bigint, out waited_us bigint, out wake_us bigint, out again boolean, out since bigint, out jobs text, out shared text)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_bitmapscan = off
  set lock_timeout = '1s' as $$
declare
  v_is record;  -- the worker, and what exists at all: each question alone would start a query up
  v_found record;  -- its classes
  v_shut bigint[] := '{}';  -- classes that gates hold back
  v_begun bigint;
  v_since bigint := coalesce(p_since, -1);
  v_more boolean := false;
  v_granted integer := 0;
  v_held boolean := false;
begin
  -- A rescue of this worker waits for the end of this transaction, or is seen here: it leaves no claim behind.
  perform pg_advisory_xact_lock_shared(1397511525, (p_worker & 2147483647)::integer);
  select w.labels, exists (select 1 from sluice.claim c where c.id = p_claim) as known, exists (select 1 from sluice.gate) as gates,
         exists (select 1 from sluice.limit_def d where d.members is not null) as pools, exists (select 1 from sluice.shared) as shared,
         e.server_at is distinct from pg_postmaster_start_time() as moved,
         e.ahead_us + (select (extract(epoch from min(j.due_at)) * 1000000)::bigint from sluice.job j
           where j.due_at > case when v_since < 0 then '-infinity' else to_timestamp((v_since - e.ahead_us) / 1e6) end
             and j.due_at < '9999-01-01') as due_us  -- later: it is parked, or never due
  into v_is
  from sluice.epoch e left join sluice.worker w on w.id = p_worker;
  if v_is.labels is null then raise exception 'worker % was given up', p_worker using errcode = 'SLW01'; end if;
  if v_is.moved then perform engine.same(); end if;
  -- Before buckets: a claim that has to wait here keeps none of them.
  if v_is.shared then shared := engine.shared(); end if;
  v_begun := engine.limiter_us(p_cap);
  now_us := v_begun; waited_us := 0; since := p_since; again := false;
  if v_is.known then jobs := engine.adopt(p_claim); again := true; wake_us := 0; return; end if;
  for round in 1 .. 2 loop
    select * into v_found from engine.find_classes(p_queues, p_tasks, v_is.labels, v_begun, v_since) f;
    exit when round = 2 or (p_want > 0 and 0 <> all (v_found.active));
    v_more := engine.learn_classes();
  end loop;
  v_found.active := array_remove(v_found.active, 0::bigint);
  if v_is.gates then
    v_shut := engine.held(v_found.classes, engine.wall(v_begun));
    v_found.classes := array(select c from unnest(v_found.classes) c where c <> all (v_shut));
    v_found.active := array(select c from unnest(v_found.active) c where c <> all (v_shut));
  end if;
  if v_found.labelled then
    v_found.active := array(select c from unnest(v_found.active) c, engine.barred(v_is.labels, v_found.active, v_begun) b where c <> all (b.classes));
  end if;
  if p_want = 0 then
    perform engine.warm(p_claim, p_worker, v_begun, p_cap);
    return;
  end if;
  if v_found.active <> '{}' then
    select s.now_us, s.granted, s.again, s.jobs, s.held into now_us, v_granted, again, jobs, v_held
    from engine.serve(p_claim, p_worker, v_found.active, not v_found.labelled and not v_is.pools, p_want, v_begun, v_since, p_cap,
                      case when p_wide then 256 else least(256, p_want + 1) end) s;
  end if;
  -- Last, when this claim waits for nothing more: of what others promote just now it may keep rows locked.
  if cardinality(v_found.classes) > 128 then perform engine.retire_classes(v_found.classes, v_found.active); end if;
  again := again or v_more;
  if v_is.due_us <= now_us then again := engine.promote(now_us, v_since) > 0 or again; end if;
  if v_granted = p_want and exists (select 1 from sluice.idle) then
    delete from sluice.idle i where i.worker = p_worker;
    -- Senders call few workers: a worker that took all that it wanted calls the next, because there may be more.
    perform engine.call(v_found.active, 1);
  end if;
  waited_us := greatest(now_us - v_begun, 0);
  if v_granted < p_want and not again then
    select s.wake_us, s.since into wake_us, since
    from engine.sleep(p_worker, p_queues, v_found.classes, v_shut, now_us, v_since, p_idle,
                      case when v_found.labelled then v_is.labels end, v_is.due_us) s;
    -- What somebody else has locked may be free at any moment.
    if v_held then wake_us := least(wake_us, 250000); end if;
  end if;
end $$;

-- Claims up to p_want jobs that all their limits allow now. One autocommitted statement reads what has arrived,
-- decides, charges the limits and marks the jobs, or does nothing at all. It waits at most a second for a lock.
-- A reply is one of these; the caller looks in this order:
-- - now_us is null: nothing was claimed, because the server has started since the store was last checked. It has the
-- store checked (`engine.check_epoch`), and repeats the claim.
-- - again is true and wake_us 0: the call repeats one that was carried out, and its jobs are those of that one; jobs is
-- ''. Every other reply with again has no wake_us.
-- - announced: senders have announced jobs of classes that do not exist (class 0 of `engine.find_classes`). The caller
-- makes these (`engine.create_announced_classes`), and claims again if it got no jobs.
-- - stale is set: nothing was claimed; the caller has these buckets rebuilt, and claims again.
-- - jobs is '': the caller reads the jobs, and their instants, by `engine.adopt_claim`, because the call was repeated,
-- or a job went away while it was marked (`engine.record_claim`).
-- - else jobs has them, as JSON for `decodeJobs` of claim/claimed-job.ts; null: there are none.
-- p_claim: after a lost reply the call is repeated with the same id.
-- p_tasks: the worker's tasks of which it can start a job now.
-- p_idle: registers the worker as idle when it gets fewer jobs than it wants, or gets them ahead of time.
-- p_since: null: unknown.
-- p_wide: considers as many lanes as a claim may, after a claim that found only blocked ones.
-- now_us: the limiter clock when it decided. waited_us: microseconds from its beginning until it decided.
-- wake_us: microseconds until the next claim; null: after a notification, or at once if it got as many as wanted now.
-- again: the next claim should follow at once.
-- since: the p_since of the next call; computed when p_since is eight seconds old, also if the next claim follows at
-- once: otherwise a busy worker would read all dead rows of the past in each claim. It stays five seconds behind,
-- because other transactions may be about to write due times; all that they write is later.
-- took_us: with instants, microseconds from its decision until its end.
-- wake: the classes of a claim that got as many jobs as it wanted. There may be more, and senders wake few workers, so
-- the caller wakes another one for them (`engine.wake_workers`). Null: no other worker is idle, or this claim was ahead
-- of time and another worker is going to wake by itself for the limit's next units.
-- It calls functions in assignments where it can, because FROM or PERFORM starts a query for each call (16 us of
-- 2,200). So the worker's lock is assigned to v_locked, which nothing reads.
create or replace function engine.claim_jobs(
  p_claim uuid, p_worker bigint, p_tasks text[], p_want integer, p_cap bigint, p_idle boolean,
  p_since bigint default null, p_wide boolean default false, p_ahead integer default 0,
  out now_us bigint, out waited_us bigint, out wake_us bigint, out again boolean, out since bigint, out jobs text,
  out redis_epoch text, out probing boolean, out instants bigint[], out took_us bigint, out wake bigint[],
  out stale bigint[], out announced boolean)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
  set enable_bitmapscan = off set lock_timeout = '1s' as $$
declare
  v_is record; v_found record; v_next record;  -- the worker, and what exists, in one query; its classes; the next claim
  v_shut bigint[] := '{}'; v_able bigint[];  -- classes that gates hold back; active ones for which its labels have room
  v_begun bigint; v_since bigint := coalesce(p_since, -1); v_served engine.served; v_full boolean; v_locked boolean;
begin
  -- A rescue of this worker has ended, or waits for the end of this transaction: so it misses no claim.
  v_locked := pg_advisory_xact_lock_shared(1397511525, (p_worker & 2147483647)::integer) is not null;  -- lock: worker
  select w.labels, w.queues, case when w.tasks <> p_tasks then p_tasks end as tasks, e.clock_lead_us, e.watched,
         exists (select 1 from sluice.claim c where c.id = p_claim) as known,
         exists (select 1 from sluice.gate) as gates, (select s.stores from sluice.shared s) as stores,
         exists (select 1 from sluice.limit_def d where d.members is not null) as pools,
         e.server_at is distinct from pg_postmaster_start_time() as moved,
         e.clock_lead_us + (select (extract(epoch from min(j.due_at)) * 1000000)::bigint from sluice.job j
           where j.due_at > case when v_since < 0 then '-infinity'  -- after 9999: parked, or never due
             else to_timestamp((v_since - e.clock_lead_us) / 1e6) end and j.due_at < '9999-01-01') as due_us
  into v_is from sluice.epoch e left join sluice.worker w on w.id = p_worker;
  if v_is.labels is null then raise exception 'worker % was given up', p_worker using errcode = 'SLW01'; end if;
  if v_is.moved then return; end if;
  -- This comes before buckets are locked: a claim that has to wait here holds none of them.
  if v_is.stores > 0 then redis_epoch := engine.lock_redis_epoch(); end if;
  v_begun := case when v_is.stores > 0 then engine.limiter_now_us(p_cap)
             else engine.limiter_time(v_is.clock_lead_us, v_is.watched, p_cap) end;
  now_us := v_begun; waited_us := 0; since := p_since; again := false;
  if v_is.known then jobs := ''; again := true; wake_us := 0; return; end if;
  v_found := engine.find_classes(v_is.queues, p_tasks, v_is.labels, v_begun, v_since);
  again := 0 = any (v_found.active); announced := again;
  v_found.active := array_remove(v_found.active, 0::bigint);
  if v_is.gates then
    v_shut := engine.find_gated_classes(v_found.classes, engine.store_time(v_begun));
    v_found.classes := array(select c from unnest(v_found.classes) c where c <> all (v_shut));
    v_found.active := array(select c from unnest(v_found.active) c where c <> all (v_shut));
  end if;
  v_able := v_found.active;
  if v_found.labelled then
    v_able := array(select c from unnest(v_able) c,
      engine.find_classes_without_room(v_is.labels, v_able, v_begun) b where c <> all (b.classes));
  end if;
  if v_able <> '{}' then
    v_served := engine.serve_claim(p_claim, p_worker, v_able, not v_found.labelled and not v_is.pools, p_want,
      v_begun, v_since, p_cap, case when p_wide then 256 else least(256, p_want + 1) end,
      case when v_is.stores > 1 then 0 else p_ahead end);
    now_us := v_served.now_us; again := again or v_served.again; jobs := v_served.jobs; probing := v_served.probing;
    stale := v_served.stale; instants := v_served.instants; waited_us := greatest(now_us - v_begun, 0);
  end if;
  -- Promotion comes last: it keeps rows locked, so this claim must wait for nothing after it.
  if v_is.due_us <= now_us then again := engine.promote_due_jobs(now_us, v_since) > 0 or again; end if;
  v_full := (v_served.granted >= case when instants is null then p_want else p_ahead end) is true;
  if v_full then
    v_is.tasks := '{}';  -- after a claim ahead of time it sleeps until this limit has room
    if exists (select 1 from sluice.idle) and (instants is null or not exists (select 1 from sluice.idle i
        where i.worker <> p_worker and i.wake_at between now_us and now_us + 1000000
          and i.bucket in (select l.id from sluice.list l where l.class = any (v_able)))) then
      delete from sluice.idle i where i.worker = p_worker;
      wake := case when exists (select 1 from sluice.idle) then v_able end; end if;
  end if;
  if not again and (not v_full or instants is not null) then
    v_next := engine.plan_next_wake(p_worker, v_is.tasks, v_found.classes, now_us, v_since, p_idle,
      case when v_found.labelled then v_is.labels end, v_is.due_us, v_served.changed);
    -- A job that another transaction has locked may be free at any moment; classes may have been left out.
    again := v_next.again; wake_us := least(v_next.wake_us, case when v_served.soon and not again then 250000 end);
  end if;
  if v_since < now_us - 8000000 then
    since := least(now_us - 5000000, v_is.due_us - 1, (
      select min(w.due) - 1 from unnest(v_found.classes || v_shut) c (id) cross join lateral (
        select l.due from sluice.list l
        where l.class = c.id and l.due > v_since and l.id <> 0 order by l.due limit 1) w)); end if;
  if instants is not null then took_us := engine.limiter_time(v_is.clock_lead_us, v_is.watched, p_cap) - now_us; end if;
end $$;

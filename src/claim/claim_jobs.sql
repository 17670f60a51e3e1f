-- Claims up to p_want jobs that all their limits allow now. One autocommitted statement reads what has arrived,
-- decides, charges the limits and marks the jobs, or does nothing at all. It waits at most a second for a lock. If one
-- lane is alone, `engine.claim_lone_lane` decides, otherwise `engine.decide_claim`. Parameters and results that are not
-- explained here: claim/records.sql.
-- outcome: `unchecked`: nothing was claimed, because the server has started since the store was last checked; the
-- caller has it checked (`engine.check_epoch`), and repeats the claim. `repeated`: this call repeats one that was
-- carried out, and its jobs are those of that one. Otherwise `decided`. The caller then looks in this order:
-- - announced: senders have announced jobs of classes that do not exist (class 0 of `engine.find_classes`). The caller
-- makes these (`engine.create_announced_classes`), and claims again if it got no jobs.
-- - stale is set: nothing was claimed; the caller has these buckets rebuilt, and claims again.
-- - due: scheduled jobs are due; the caller returns them to their lanes (`engine.promote_due_jobs`), and claims again
-- if there were some.
-- - jobs is '': the caller reads the jobs, and their instants, by `engine.adopt_claim`, because the call was repeated,
-- or a job went away while it was marked (`engine.record_claim`).
-- - else jobs has them, as JSON for `decodeJobs` of claim/claimed-job.ts; null: there are none.
-- p_claim: after a lost reply the call is repeated with the same id.
-- p_tasks: the worker's tasks of which it can start a job now.
-- p_idle: registers the worker as idle when it gets fewer jobs than it wants, or gets them ahead of time; when it got
-- all of them ahead, with no tasks, so that no send wakes it.
-- p_since: as in engine.claimer; null: no earlier answer showed one.
-- p_wide: considers as many lanes as a claim may, after a claim that found only blocked ones.
-- now_us: the limiter clock when it decided. waited_us: microseconds from its beginning until it decided.
-- wake_us: microseconds until the next claim; null: the next claim waits for a notification, or follows at once if this
-- one got as many jobs as wanted now.
-- again: the next claim should follow at once.
-- since: the p_since of the next call; computed when p_since is eight seconds old, also if the next claim follows at
-- once: otherwise a busy worker would read all dead rows of the past in each claim. It stays five seconds behind,
-- because other transactions may be about to write due times; all that they write is later.
-- took_us: microseconds from its decision until its end; null without instants.
-- wake: the classes of a claim that got as many jobs as it wanted (`engine.find_classes_to_wake`).
-- It calls functions in assignments where it can, because FROM or PERFORM starts a query for each call (16 us of
-- 2,200).
create or replace function engine.claim_jobs(
  p_claim uuid, p_worker bigint, p_tasks text[], p_want integer, p_cap bigint, p_idle boolean,
  p_since bigint default null, p_wide boolean default false, p_ahead integer default 0,
  out now_us bigint, out waited_us bigint, out wake_us bigint, out again boolean, out since bigint, out jobs text,
  out redis_epoch text, out on_trial boolean, out instants bigint[], out took_us bigint, out wake bigint[],
  out stale bigint[], out announced boolean, out due boolean, out outcome text)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
  set enable_bitmapscan = off set lock_timeout = '1s' as $$
declare
  v_since constant bigint := coalesce(p_since, -1);
  v_facts constant record := engine.assert_worker(p_claim, p_worker, p_tasks, v_since);
  v_begun bigint; v_classes record;  -- the worker's classes
  v_able bigint[];  -- active ones for which its labels have room
  v_read record;  -- those of them that this claim locks, and their arrivals
  v_plain boolean;  -- no job requires a label or a pool
  v_claimer engine.claimer; v_claimed engine.claimed; v_full boolean; v_next record;  -- the next claim
begin
  outcome := case when v_facts.restarted then 'unchecked' when v_facts.known then 'repeated' else 'decided' end;
  if v_facts.restarted then return; end if;
  -- This comes before buckets are locked: a claim that has to wait here holds none of them.
  if v_facts.stores > 0 then redis_epoch := engine.lock_redis_epoch(); end if;
  v_begun := engine.limiter_time(v_facts.clock_offset_us, v_facts.watched, p_cap);
  now_us := v_begun; waited_us := 0; since := p_since; again := false;
  if v_facts.known then jobs := ''; again := true; return; end if;
  v_classes := engine.find_classes(v_facts.queues, p_tasks, v_facts.labels, v_begun, v_since,
    case when v_facts.gates then to_timestamp((v_begun - v_facts.clock_offset_us) / 1e6) end);
  announced := 0 = any (v_classes.active); again := announced;
  v_able := array_remove(v_classes.active, 0::bigint);
  if v_classes.labelled then
    v_able := array(select c from unnest(v_able) c,
      engine.find_classes_without_room(v_facts.labels, v_able, v_begun) b where c <> all (b.classes));
  end if;
  if v_able <> '{}' then
    v_read := engine.read_locked_classes(v_able);
    v_plain := not v_classes.labelled and not v_facts.pools;
    if v_facts.stores > 1 then p_ahead := 0; end if;
    v_claimer := (p_claim, p_worker, p_want, p_ahead, v_begun, v_since, p_cap)::engine.claimer;
    if v_plain and cardinality(v_read.classes) = 1 then
      v_claimed := engine.claim_lone_lane(v_claimer, v_read.news[1]);
      v_claimed.of := v_read.classes; v_claimed.taken := array[v_claimed.granted];
    end if;
    if v_claimed.fits is not true then
      perform engine.absorb_arrivals(v_begun, v_read.news);
      v_claimed := engine.decide_claim(
        v_claimer, v_read.classes, v_read.news, case when p_wide then 256 else least(256, p_want + 1) end);
    end if;
    perform engine.record_class_states(v_read.news, v_claimed.of, v_claimed.taken);
    now_us := v_claimed.now_us; waited_us := greatest(now_us - v_begun, 0); jobs := v_claimed.jobs;
    on_trial := v_claimed.on_trial; stale := v_claimed.stale; instants := v_claimed.instants;
    -- Classes that were left out are read at once, unless these gave nothing, and will give nothing soon.
    again := again or v_claimed.again or v_read.rest
      or (v_read.partly and (v_claimed.granted > 0 or (v_plain and not v_claimed.soon)));
    v_claimed.soon := v_claimed.soon or v_read.partly;
  end if;
  due := v_facts.due_us <= now_us;
  v_full := (v_claimed.granted >= case when instants is null then p_want else p_ahead end) is true;
  if v_full then wake := engine.find_classes_to_wake(p_worker, v_able, now_us, instants is not null); end if;
  if not again and (not v_full or instants is not null) then
    v_next := engine.plan_next_wake(
      -- After a full claim ahead of time it sleeps until the limit that it granted ahead has room again.
      p_worker, case when v_full then '{}' else v_facts.tasks end, v_classes.classes, now_us, v_since, p_idle,
      case when v_classes.labelled then v_facts.labels end, v_facts.due_us, v_claimed.changed);
    -- A job that another transaction has locked may be free at any moment; classes may have been left out.
    again := v_next.again; wake_us := least(v_next.wake_us, case when v_claimed.soon and not again then 250000 end);
  end if;
  if v_since < now_us - 8000000 then
    since := least(now_us - 5000000, v_facts.due_us - 1, (
      select min(w.due) - 1 from unnest(v_classes.classes || v_classes.shut) c (id) cross join lateral (
        select l.due from sluice.list l
        where l.class = c.id and l.due > v_since and l.id <> 0 order by l.due limit 1) w));
  end if;
  if instants is not null then
    took_us := engine.limiter_time(v_facts.clock_offset_us, v_facts.watched, p_cap) - now_us; end if;
end $$;

-- Deletes a worker and takes its jobs from it for good: its claims no longer match, so whatever it still does changes
-- nothing. Returns how many jobs wait again. It waits at most two seconds for a class. After that it waits at most half
-- a second for each lock if the worker was lost: another client may have locked a job for long, and claims wait for the
-- classes that are locked by then. The next look comes in two seconds.
-- p_beat: rescue it only if its beat is still this one; null: in any case
-- p_why: lost: the outcome of its attempts is in doubt. They count as crashes; the third crash ends a job, and the
-- first one ends a job that may run only once.
-- shutdown: the worker itself reports that it never called the jobs' handlers, so their grants are given back. In both
-- cases so are those of a dispatcher whose jobs nobody can have begun, and those of jobs that were granted for more
-- than 100 ms after their claim, if the worker has not recorded that they begin (`doubtMs` in claim/begins.ts).
create or replace function engine.rescue_worker(p_worker bigint, p_beat bigint, p_why text) returns integer
language plpgsql set lock_timeout = '2s' as $$
declare
  v_now timestamptz := sluice.now();
  v_ids uuid[];
  v_claims uuid[];
  v_unused boolean[];
  v_count integer := 0; v_back integer := 0; v_again uuid[];
  v_lost sluice.worker;
  v_error constant jsonb := jsonb_build_object('code', 'SLUICE_WORKER_LOST',
    'message', 'its worker was lost during the attempt; whether the call was made is not known');
  v_doubtful sluice.job[];
  v_crashed sluice.job[];
begin
  -- Deleted before the worker, because `engine.watch_workers` has all doubts locked when it gives a worker up.
  delete from sluice.doubt d where d.worker = p_worker;
  -- A claim of this worker that is under way ends first; a later one finds that the worker is gone.
  perform pg_advisory_xact_lock(1397511525, (p_worker & 2147483647)::integer);  -- lock: worker
  delete from sluice.worker w where w.id = p_worker and (p_beat is null or w.beat = p_beat) returning * into v_lost;
  if not found then return 0; end if;
  perform engine.lock_classes_of_worker(p_worker);
  if p_why = 'lost' then perform set_config('lock_timeout', '500ms', true); end if;
  with held as (
    delete from sluice.claim c where c.worker = p_worker returning c.*
  )
  -- A job that nobody has begun, or could begin, is not in doubt.
  select array_agg(j.id), array_agg(j.claim), array_agg(p_why = 'shutdown' or s.seq <> all (coalesce(h.begun, '{}'))
    and coalesce(case when v_lost.stints is null then s.at > h.at + 100000 else v_lost.stints = '{}' end, false))
  into v_ids, v_claims, v_unused
  from held h cross join unnest(h.lanes, h.seqs, h.instants) s (lane, seq, at)
  join sluice.job j on j.lane = s.lane and j.seq = s.seq and j.due_at is null and j.claim = h.id;
  if v_ids is not null then
    perform engine.release_attempts(v_ids, v_claims, v_unused);
    v_back := engine.return_uncalled(array(select u.id from unnest(v_ids, v_unused) u (id, unused) where u.unused),
      array(select u.claim from unnest(v_claims, v_unused) u (claim, unused) where u.unused));
    update sluice.job j set attempts = engine.append_attempt(j, 'lost', null,
      engine.attempt_report(j.dispatched_at, v_now, v_lost.id, v_lost.host, v_lost.version), v_error::text, null)
    from unnest(v_ids, v_claims) u (id, claim) where j.id = u.id and j.claim = u.claim;
    with mine as (
      select j.id from unnest(v_ids, v_claims) u (id, claim) join sluice.job j on j.id = u.id and j.claim = u.claim
    ), crashed as (
      delete from sluice.job j using mine m
      where j.id = m.id and (j.crashes >= 2 or engine.is_at_most_once(j)) returning j.*
    ), back as (
      update sluice.job j set claim = null, crashes = j.crashes + 1, ambiguous = true, error = v_error
      from mine m where j.id = m.id and j.crashes < 2 and not engine.is_at_most_once(j)
      returning j.id
    )
    select (select array_agg(id) from back), array_agg(d.job) filter (where d.once),
           array_agg(d.job) filter (where not d.once)
    into v_again, v_doubtful, v_crashed
    from (select engine.is_at_most_once(c::sluice.job) as once,
                 jsonb_populate_record(c::sluice.job,
                   jsonb_build_object('crashes', c.crashes + 1, 'ambiguous', true)) as job
          from crashed c) d;
    if v_again is not null then perform engine.announce_jobs(v_again); end if;
    v_count := coalesce(cardinality(v_again), 0);
    perform engine.record_failed_jobs(v_doubtful, 'doubtful', 'SLUICE_WORKER_LOST',
      'its worker was lost during the attempt; whether the call was made is not known, and it may be made only once');
    perform engine.record_failed_jobs(v_crashed, 'crashed', 'SLUICE_WORKER_LOST',
      'its worker was lost during an attempt three times');
  end if;
  if p_why = 'lost' then
    perform engine.notify_event('rescued', jsonb_build_object('worker', p_worker::text, 'host', v_lost.host,
      'pid', v_lost.pid, 'jobs', v_count));
  end if;
  delete from sluice.idle i where i.worker = p_worker;
  if v_count + v_back > 0 then perform pg_notify('sluice.wake', '*'); end if;
  return v_count + v_back;
end $$;

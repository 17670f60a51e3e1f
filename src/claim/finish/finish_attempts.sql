-- Ends attempts. An attempt is fenced by its claim: an attempt whose job was rescued changes nothing. A repetition
-- after a lost reply finds nothing to do. Returns the seqs of the jobs whose endings it did not accept.
-- It waits at most three seconds for a lock: another client may have locked a job (claim/finish/find_locked_jobs.sql).
-- p_claims: the claims that handed out the jobs.
-- p_ended: claims whose jobs have all ended.
-- p_seqs, p_ids: the jobs, in the order of their seqs, in which they are locked.
-- p_claim_ix: the position in p_claims of each job's claim.
-- p_outcomes: how each attempt ended:
-- - done: it succeeded.
-- - failed: the job has failed; p_reasons has the reason.
-- - retry: the job is due again in p_delays_us, in the lane of retries (store/lane_id.sql).
-- - throttled: the vendor refused it, which is no failure; the job is due again in p_delays_us, in its own lane.
-- - return: the attempt does not count, and its grant is not given back here: the worker has done so already, because
-- no call was made, or the handler has used it and delayed the job. The job is in its place again at once, unless it is
-- put off; so it is after unused, denied and interrupt (`engine.lock_classes_of_jobs`).
-- - unused: as return, and the grant is given back. An unused or returned attempt may be put off by p_delays_us;
-- p_reasons then names the cause.
-- - denied: as unused, because Redis denied the job: other programs share its limits. p_reasons names the bucket that
-- they used up, which keeps its charge; null: none.
-- - readmit: as unused, and the job waits in another lane from now on (`engine.readmit_jobs`).
-- - discard: as unused, and the job is cancelled.
-- - interrupt: it was stopped in the middle; the job is tried again, and is in doubt. With a reason its process was
-- lost. A job that may run only once has failed instead; that is decided here, because a dispatcher may lack its task.
-- p_began_us: how long after its claim each attempt began, in microseconds.
-- p_reports: what each attempt leaves for the record, as in `engine.append_attempt`. Null for all: none of them leaves
-- anything.
-- p_results, p_errors: JSON.
-- p_places: as in `engine.readmit_jobs`. Null: no job is readmitted.
create or replace function engine.finish_attempts(
  p_claims uuid[], p_ended uuid[], p_seqs bigint[], p_ids uuid[], p_claim_ix integer[], p_outcomes text[],
  p_began_us bigint[], p_reasons text[], p_results text[], p_errors text[], p_delays_us bigint[],
  p_places text[] default null, p_reports text[] default null)
returns bigint[]
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
  set enable_bitmapscan = off set lock_timeout = '3s' as $$
declare
  v_now timestamptz := sluice.now(); v_discarded engine.ending[]; v_failed engine.ending[];
  v_home constant text[] := '{return,unused,denied,interrupt,readmit}';  -- in their places again, unless put off
  v_done uuid[]; v_moved uuid[] := '{}'; v_ended uuid[];  -- archived, readmitted, all that are accepted
  v_back uuid[]; v_fallen uuid[];  -- in their places again; failed, so their tasks may want a job (`onFailed`)
begin
  if v_home && p_outcomes then perform engine.lock_classes_of_jobs(p_ids, p_places); end if;
  -- Claims come before jobs, as in engine.rescue_worker.
  delete from sluice.claim c where c.id = any (p_ended);
  -- Jobs that more than one statement changes are locked first, in one order.
  if not 'done' = all (p_outcomes) or cardinality(engine.lock_definitions()) > 0 then
    perform engine.release_attempts(
      array_agg(u.id), array_agg(p_claims[u.ix]), array_agg(u.outcome in ('unused', 'denied', 'readmit', 'discard')),
      array_agg(case when u.outcome = 'denied' then u.reason end))
    from unnest(p_ids, p_claim_ix, p_outcomes, p_reasons) u (id, ix, outcome, reason);
  end if;
  if p_places is not null then
    v_moved := engine.readmit_jobs(
      p_ids, array(select p_claims[ix] from unnest(p_claim_ix) with ordinality u (ix, o) order by o), p_places);
  end if;
  if 'done' = any (p_outcomes) then
    v_done := engine.archive_done_jobs(p_claims, p_ids, p_claim_ix, p_outcomes, p_began_us, p_results, p_reports);
    if cardinality(v_done) = cardinality(p_ids) then return '{}'; end if;
  end if;
  with item as (
    select u.*, p_claims[u.ix] as claim, kind = any (v_home) and coalesce(delay_us, 0) = 0 as is_back,
      case when o.is_over then 'failed' else kind end as outcome,
      case when o.is_over then 'doubtful' else cause end as reason
    from unnest(p_ids, p_claim_ix, p_outcomes, p_began_us, p_reasons, p_errors, p_delays_us, p_reports)
      u (id, ix, kind, began_us, cause, error, delay_us, report)
    cross join lateral (select kind = 'interrupt' and exists (
      select from sluice.job j where j.id = u.id and engine.is_at_most_once(j)) as is_over) o where kind <> 'done'
  ), ended as (
    delete from sluice.job j using item i
    where j.id = i.id and j.claim = i.claim and i.outcome in ('failed', 'discard')
    returning j.id, i.outcome, j.on_failed is not null or j.raw as falls, row(j,
      case when i.outcome = 'failed' then 'failed' else 'cancelled' end, i.reason,
      j.attempt - (i.outcome = 'discard')::integer, j.failed + (i.outcome = 'failed')::integer,
      j.ambiguous or i.outcome = 'failed' and coalesce(i.reason = 'doubtful', false),
      case when i.outcome = 'failed' then engine.attempt_begin(j.dispatched_at, i.began_us, v_now) end,
      coalesce(i.error::jsonb, j.error), engine.append_attempt(j, i.outcome, i.began_us, i.report, i.error, null),
      case when i.report is null then j.notes else i.report::json -> 1 end)::engine.ending as ending
  ), again as (
    update sluice.job j set claim = null, ambiguous = j.ambiguous or i.outcome = 'interrupt',
      due_at = case when not i.is_back then v_now + make_interval(secs => coalesce(i.delay_us, 0) / 1e6) end,
      attempt = j.attempt - case when i.outcome in ('return', 'unused', 'denied') then 1 else 0 end,
      failed = j.failed + (i.outcome = 'retry')::integer, lane = j.lane | (i.outcome = 'retry')::integer,
      throttled = j.throttled + (i.outcome = 'throttled')::integer, error = coalesce(i.error::jsonb, j.error),
      crashes = j.crashes + (i.outcome = 'interrupt' and i.reason is not null)::integer,
      delay_reason = case when i.outcome in ('return', 'unused', 'throttled') then i.reason end,
      attempts = engine.append_attempt(j, i.outcome, i.began_us, i.report, i.error, i.delay_us),
      notes = case when i.report is null then j.notes else i.report::json -> 1 end
    from item i where j.id = i.id and j.claim = i.claim
      and i.outcome in ('retry', 'throttled', 'return', 'unused', 'denied', 'interrupt')
    returning j.id, i.is_back
  )
  select (select array_agg(id) from (select id from ended union all select id from again) s),
         (select array_agg(id) from again where is_back),
         array_agg(id) filter (where outcome = 'failed' and falls),
         array_agg(ending) filter (where outcome = 'discard'), array_agg(ending) filter (where outcome = 'failed')
  into v_ended, v_back, v_fallen, v_discarded, v_failed from ended;
  perform engine.append_history('done', v_discarded), engine.append_history('failed', v_failed);
  if v_fallen is not null then perform engine.send_failure_jobs(v_fallen); end if;
  if v_back is not null then perform engine.announce_jobs(v_back); end if;
  v_ended := v_done || v_ended || v_moved;
  if cardinality(v_ended) = cardinality(p_ids) then return '{}'; end if;
  return array(select u.seq from unnest(p_seqs, p_ids) u (seq, id) where u.id <> all (v_ended));
end $$;

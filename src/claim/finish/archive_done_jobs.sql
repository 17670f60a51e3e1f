-- Moves succeeded jobs to history, and returns their ids: the part of `engine.finish_attempts` that handles nearly all
-- jobs of nearly all batches. Its parameters are explained there. It has a column list of its own because
-- `engine.append_history` takes 1.3 times as long for 500 jobs, and it is a statement of its own because PostgreSQL
-- first stores rows that several parts of a statement read.
create or replace function engine.archive_done_jobs(
  p_claims uuid[], p_ids uuid[], p_claim_ix integer[], p_outcomes text[], p_began_us bigint[], p_results text[],
  p_reports text[])
returns uuid[]
language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
  v_ids uuid[];
begin
  with ended as (
    delete from sluice.job j
    using unnest(p_ids, p_claim_ix, p_outcomes, p_began_us, p_results, p_reports)
      i (id, ix, outcome, began_us, result, report)
    where i.outcome = 'done' and j.id = i.id and j.claim = p_claims[i.ix]
    returning j.*, i.result, engine.attempt_begin(j.dispatched_at, i.began_us, v_now) as begun,
      case when i.report is null then j.attempts
      else engine.append_attempt(j, 'done', i.began_us, i.report, null, null) end as all_attempts,
      i.report::json -> 1 as report_notes
  ), kept as (
    insert into sluice.done (id, state, task, queue, priority, attempt, failed, throttled, crashes, ambiguous,
      created_at, dispatched_at, started_at, finished_at, fair, buckets, costs, tags, input, result, error, claim,
      weight, once, on_failed, ruled, attempts, notes)
    select id, 'done', task, queue, priority, attempt, failed, throttled, crashes, ambiguous,
      created_at, dispatched_at, begun, v_now, fair, buckets, costs, tags, input, result::jsonb, error, claim,
      weight, once, on_failed, ruled, all_attempts, report_notes
    from ended returning id
  )
  select array_agg(id) into v_ids from kept;
  return v_ids;
end $$;

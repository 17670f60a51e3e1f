-- Moves jobs that are done to history, and returns their ids: the part of finish, which has the parameters explained, that
-- almost all of almost all batches are. Its own list of columns, since 500 jobs take 1.3 times as long by append_history, and a
-- statement of its own, since rows that several parts of a statement read are kept aside by it first.
create or replace function engine.done(
  p_claims uuid[], p_ids uuid[], p_claim_ix integer[], p_outcomes text[], p_took_us bigint[], p_results text[]) returns uuid[]
language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
  v_ids uuid[];
begin
  with ended as (
    delete from sluice.job j using unnest(p_ids, p_claim_ix, p_outcomes, p_took_us, p_results) i (id, ix, outcome, took_us, result)
    where i.outcome = 'done' and j.id = i.id and j.claim = p_claims[i.ix]
    returning j.*, i.took_us, i.result
  ), kept as (
    insert into sluice.done (id, state, task, queue, priority, attempt, failed, crashes, ambiguous, created_at, dispatched_at,
      started_at, finished_at, fair, takes, costs, tags, input, result, error, claim, weight, once, on_failed, ruled)
    select id, 'done', task, queue, priority, attempt, failed, crashes, ambiguous, created_at, dispatched_at,
      v_now - make_interval(secs => took_us / 1e6), v_now, fair, takes, costs, tags, input, result::jsonb, error, claim,
      weight, once, on_failed, ruled
    from ended returning id
  )
  select array_agg(id) into v_ids from kept;
  return v_ids;
end $$;

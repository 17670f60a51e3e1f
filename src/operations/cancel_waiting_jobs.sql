-- Cancels those of these jobs that are in one of the given states, and returns the ids of the jobs that it cancelled.
-- It skips locked rows, because a claim may hold classes and buckets while it waits for such a row; it waits for the
-- row if it is the only one.
-- p_states: waiting, scheduled
create or replace function engine.cancel_waiting_jobs(p_ids uuid[], p_states text[], p_reason text) returns setof uuid
language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v_ids uuid[];
  v_endings engine.ending[];
begin
  if cardinality(p_ids) = 1 then perform 1 from sluice.job where id = p_ids[1] for update; end if;
  v_ids := array(
    select id from sluice.job where id = any (p_ids) and claim is null
      and engine.state_of_job(job) = any (p_states)
    for update skip locked);
  with gone as (
    delete from sluice.job j where j.id = any (v_ids)
    returning row(j, 'cancelled', p_reason, j.attempt, j.failed, j.ambiguous, null, j.error, j.attempts,
      j.notes)::engine.ending as ending
  )
  select array_agg(ending) into v_endings from gone;
  perform engine.append_history('done', v_endings);
  return query select unnest(v_ids);
end $$;

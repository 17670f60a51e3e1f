-- Inserts the records of jobs that have just been deleted. Only this file and claim/finish/archive_done_jobs.sql write
-- the columns of history; three files of operations/ read them one by one. A failed job whose sender did not know its
-- task's code gets the task's onFailed.
-- p_table: done or failed.
-- p_endings: how each job ended. Null: no job did.
create or replace function engine.append_history(p_table text, p_endings engine.ending[]) returns void
language plpgsql as $$
begin
  if p_endings is null then return; end if;
  execute format($q$
    insert into sluice.%I (id, state, reason, attempt, failed, ambiguous, started_at, error, finished_at,
      task, queue, priority, throttled, crashes, created_at, dispatched_at, fair, buckets, costs, tags, input, claim,
      weight, once, ruled, raw, attempts, notes, on_failed)
    select (e.job).id, e.state, e.reason, e.attempt, e.failed, e.ambiguous, e.started_at, e.error, $2,
      (e.job).task, (e.job).queue, (e.job).priority, (e.job).throttled, (e.job).crashes, (e.job).created_at,
      (e.job).dispatched_at, (e.job).fair, (e.job).buckets, (e.job).costs, (e.job).tags, (e.job).input, (e.job).claim,
      (e.job).weight, (e.job).once, (e.job).ruled, (e.job).raw, e.attempts, e.notes,
      coalesce((e.job).on_failed, case when (e.job).raw and e.state = 'failed' then t.on_failed end)
    from unnest($1) e left join sluice.task t on t.name = (e.job).task $q$, p_table)
  using p_endings, sluice.now();
end $$;

-- Handles the due instants of a schedule: advances it, records the outcome of each instant, and returns whether the
-- caller sends their jobs in the same statement. Only the first caller whose p_next_ms is the schedule's next instant
-- succeeds, so of several processes one sends, and none sends twice after a lost reply. All times are in ms since 1970.
-- p_timing: the timing of the caller's definition; another timing in the store means `passed`.
-- p_next_ms: the next instant that the caller read.
-- p_then_ms: the next instant from now on.
-- p_due_ms: the instants to send.
-- p_jobs: the ids of their jobs, in the same order.
-- p_missed_ms: the instants from p_next_ms to this one are left out; null: none.
-- p_alone: one job at a time: only the first of p_due_ms is sent, and none while the schedule's last job is unfinished.
-- Returns sent, skipped, missed, or passed: it changed nothing.
-- It waits at most a second for the schedule's row, because the caller fires its other schedules after this one.
create or replace function engine.fire_schedule(
  p_name text, p_timing text, p_next_ms bigint, p_then_ms bigint, p_due_ms bigint[], p_jobs uuid[], p_missed_ms bigint,
  p_alone boolean)
returns text language plpgsql set lock_timeout = '1s' as $$
declare
  v_now timestamptz := sluice.now();
  v_newest timestamptz := to_timestamp(coalesce(p_due_ms[cardinality(p_due_ms)], p_missed_ms) / 1e3);
  v_before uuid;
  v_outcome text;
begin
  -- Of two concurrent callers the second waits here for the first, and then finds another next_at.
  update sluice.schedule s set next_at = to_timestamp(p_then_ms / 1e3), last_at = v_newest, error = null
  where s.name = p_name and s.timing = p_timing and s.next_at = to_timestamp(p_next_ms / 1e3) and s.paused_at is null
    and v_newest <= v_now
  returning s.last_job into v_before;
  if not found then return 'passed'; end if;
  v_outcome := case
    when cardinality(p_due_ms) = 0 then 'missed'
    -- sluice.job has only unfinished jobs.
    when p_alone and exists (select 1 from sluice.job j where j.id = v_before) then 'skipped'
    else 'sent' end;
  if v_outcome = 'sent' then
    update sluice.schedule s set last_job = p_jobs[cardinality(p_jobs)] where s.name = p_name;
  end if;
  insert into sluice.firing (schedule, at, until, outcome, job, recorded_at)
  select p_name, to_timestamp(d.ms / 1e3), to_timestamp(d.ms / 1e3), case when w.sent then 'sent' else 'skipped' end,
         case when w.sent then p_jobs[d.i] end, v_now
  from unnest(p_due_ms) with ordinality d (ms, i)
  cross join lateral (select v_outcome = 'sent' and d.i <= cardinality(p_jobs) as sent) w;
  if p_missed_ms is not null then
    insert into sluice.firing (schedule, at, until, outcome, recorded_at)
    values (p_name, to_timestamp(p_next_ms / 1e3), to_timestamp(p_missed_ms / 1e3), 'missed', v_now);
  end if;
  -- Keep the newest 1,000 records.
  delete from sluice.firing f where f.schedule = p_name
    and f.at < (select o.at from sluice.firing o where o.schedule = p_name order by o.at desc offset 999 limit 1);
  return v_outcome;
end $$;

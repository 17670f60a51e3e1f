-- Deals with the instants of a schedule that are due: moves it on, records what became of each, and says whether the
-- caller, in the same statement, is to send their jobs. Only who names the next instant as the schedule has it may: of
-- several processes the first, and nobody twice, also after a lost reply.
-- p_next_ms: what the caller thinks is next; p_then_ms: what will be. p_due_ms: instants, each with its job in p_jobs.
-- p_missed_ms: instants from p_next_ms to this one are left out. p_alone: one job at a time, so the first of them at most.
-- All in ms since 1970. Returns sent, skipped, missed, or passed: nothing was done.
create or replace function engine.fire(
  p_name text, p_timing text, p_next_ms bigint, p_then_ms bigint, p_due_ms bigint[], p_jobs uuid[], p_missed_ms bigint,
  p_alone boolean)
returns text language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
  v_newest timestamptz := to_timestamp(coalesce(p_due_ms[cardinality(p_due_ms)], p_missed_ms) / 1e3);
  v_before uuid;
  v_outcome text;
begin
  -- The second of two waits here for the first, and then finds another next_at.
  update sluice.schedule s set next_at = to_timestamp(p_then_ms / 1e3), last_at = v_newest, error = null
  where s.name = p_name and s.timing = p_timing and s.next_at = to_timestamp(p_next_ms / 1e3) and s.paused_at is null
    and v_newest <= v_now
  returning s.last_job into v_before;
  if not found then return 'passed'; end if;
  v_outcome := case
    when cardinality(p_due_ms) = 0 then 'missed'
    -- Finished jobs are not in this table.
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
  -- The newest 1,000 are kept.
  delete from sluice.firing f where f.schedule = p_name
    and f.at < (select o.at from sluice.firing o where o.schedule = p_name order by o.at desc offset 999 limit 1);
  return v_outcome;
end $$;

-- Moves those of these jobs that wait or are scheduled into the lane of another priority; each keeps its place in time.
-- Returns the ids of the jobs that have this priority now. The lanes that they leave find fewer jobs than they
-- count, as after a cancel; an arrival announces the jobs to the lanes that they join. It skips locked rows, but waits
-- for the row if it is the only one: `engine.cancel_waiting_jobs` explains why.
-- p_states: waiting, scheduled
create or replace function engine.reprioritise_jobs(p_ids uuid[], p_states text[], p_priority integer)
returns setof uuid
language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v_now timestamptz := sluice.now();
  v_ids uuid[];
  v_moved uuid[];
begin
  if cardinality(p_ids) = 1 then perform 1 from sluice.job where id = p_ids[1] for update; end if;
  v_ids := array(
    select id from sluice.job where id = any (p_ids) and claim is null
      and case when due_at < 'infinity' then 'scheduled' else 'waiting' end = any (p_states)
    for update skip locked);
  with moved as (
    update sluice.job set priority = p_priority,
      lane = (lane & 1) | engine.lane_id(queue, task, p_priority, weight, fair, takes, costs is not null),
      due_at = case when due_at > v_now then due_at end,
      -- As in `engine.promote_due_jobs`.
      since = case when due_at <= v_now and dispatched_at is null then due_at else since end
    where id = any (v_ids) and priority <> p_priority
    returning id
  )
  select array_agg(id) into v_moved from moved;
  perform engine.announce_jobs(v_moved);
  return query select unnest(v_ids);
end $$;

-- Moves those of these jobs that wait or are scheduled to another lane: that of another priority, or of another key of
-- a limit. Each keeps its place in time. A new key changes the job's buckets, and its fair key if that has the same
-- value. It is recorded as if a rule had given it, so that the task's code keeps it. The lanes that the jobs leave find
-- fewer jobs than they count, as after a cancel; arrivals announce the jobs to the lanes that they join. It skips
-- locked rows, but waits for the row if it is the only one: `engine.cancel_waiting_jobs` explains why.
-- p_states: waiting, scheduled
-- p_priority: the new priority; null: it stays
-- p_name, p_from, p_to: the limit, the old and the new key; null: the keys stay
-- Returns the ids of the jobs that have the new priority or key now.
create or replace function engine.move_jobs(
  p_ids uuid[], p_states text[], p_priority integer, p_name text default null, p_from text default null,
  p_to text default null)
returns setof uuid language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v_now timestamptz := sluice.now();
  v_ids uuid[];
  v_moved uuid[];
begin
  if cardinality(p_ids) = 1 then perform 1 from sluice.job where id = p_ids[1] for update; end if;
  v_ids := array(
    select id from sluice.job
    where id = any (p_ids) and claim is null and (p_name is null or p_name || ':' || p_from = any (buckets))
      and engine.state_of_job(job) = any (p_states)
    for update skip locked);
  with place as (
    select j.id, coalesce(p_priority, j.priority) as priority, case when p_name is null then j.buckets else array(
             -- A limit with a share has two buckets with this key.
             select case when split_part(split_part(t, ':', 1), '/', 1) = p_name
                           and substr(t, strpos(t, ':') + 1) = p_from
                         then split_part(t, ':', 1) || ':' || p_to else t end
             from unnest(j.buckets) with ordinality u (t, o) order by o) end as buckets,
           case when j.fair = j.task || ':' || p_from then j.task || ':' || p_to else j.fair end as fair
    from sluice.job j where j.id = any (v_ids) and (p_name is not null or j.priority <> p_priority)
  ), moved as (
    update sluice.job j set priority = p.priority, buckets = p.buckets, fair = p.fair,
      lane = (j.lane & 1)
        | engine.lane_id(j.queue, j.task, p.priority, j.weight, p.fair, p.buckets, j.costs is not null),
      ruled = case when p_name is null then j.ruled else coalesce(j.ruled, '[]') || jsonb_build_array(
        jsonb_build_object('rule', 'limits rekey', 'keys', jsonb_build_object(p_name, p_to))) end,
      due_at = case when j.due_at > v_now then j.due_at end,
      -- As in `engine.promote_due_jobs`.
      since = case when j.due_at <= v_now and j.dispatched_at is null then j.due_at else j.since end
    from place p where j.id = p.id returning j.id
  )
  select array_agg(id) into v_moved from moved;
  perform engine.announce_jobs(v_moved);
  return query select unnest(v_ids);
end $$;

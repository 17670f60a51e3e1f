-- Moves those of these jobs that wait or are scheduled to another key of a limit; each keeps its place in time. It
-- changes their buckets, their fair key if that has the same value, and records the new key as if a rule had given it,
-- so that their task's code keeps it. Running jobs keep their bucket. Lanes, arrivals and locks are handled as in
-- `engine.reprioritise_jobs`. Returns the ids of the jobs that have the new key now.
-- p_states: waiting, scheduled
-- p_name: the limit
-- p_from, p_to: the old and the new key
create or replace function engine.rekey_jobs(p_ids uuid[], p_states text[], p_name text, p_from text, p_to text)
returns setof uuid language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v_now timestamptz := sluice.now();
  v_old text := p_name || ':' || p_from;
  v_new text := p_name || ':' || p_to;
  v_ids uuid[];
begin
  if cardinality(p_ids) = 1 then perform 1 from sluice.job where id = p_ids[1] for update; end if;
  v_ids := array(
    select id from sluice.job where id = any (p_ids) and claim is null and v_old = any (takes)
      and case when due_at < 'infinity' then 'scheduled' else 'waiting' end = any (p_states)
    for update skip locked);
  with place as (
    select j.id, array(
             -- A limit with a share has two buckets with this key.
             select case when split_part(split_part(t, ':', 1), '/', 1) = p_name
                           and substr(t, strpos(t, ':') + 1) = p_from
                         then split_part(t, ':', 1) || ':' || p_to else t end
             from unnest(j.takes) with ordinality u (t, o) order by o) as takes,
           case when j.fair = j.task || ':' || p_from then j.task || ':' || p_to else j.fair end as fair
    from sluice.job j where j.id = any (v_ids)
  )
  update sluice.job j set takes = p.takes, fair = p.fair,
      lane = (j.lane & 1) | engine.lane_id(j.queue, j.task, j.priority, j.weight, p.fair, p.takes, j.costs is not null),
      ruled = coalesce(j.ruled, '[]') || jsonb_build_array(jsonb_build_object(
        'rule', 'limits rekey', 'keys', jsonb_build_object(p_name, p_to))),
      due_at = case when j.due_at > v_now then j.due_at end,
      since = case when j.due_at <= v_now and j.dispatched_at is null then j.due_at else j.since end
    from place p where j.id = p.id;
  perform engine.announce_jobs(v_ids);
  return query select unnest(v_ids);
end $$;

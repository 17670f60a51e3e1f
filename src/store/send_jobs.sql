-- Inserts jobs, and an arrival for each lane of the batch; no other sender touches these rows.
-- p_lanes: the lanes of the batch, as JSON: a list of objects with lane, queue, task, priority, weight, fair and
-- buckets (their names, separated by U+001F).
-- p_ids: the ids of the jobs; this and the following have one element for each job.
-- p_lane_ix: the position of the job's lane in p_lanes, from 1.
-- p_inputs: inputs as JSON, one a line.
-- p_extras: fields that few jobs have, as JSON, one object or null a line; null: no job has any. delayUs: not before so
-- many microseconds from now; atUs: not before this time, in microseconds since 1970; tags, separated by U+001F; costs,
-- waitUs, once, onFailed, ruled, formerly.
-- p_known: these ids may have been sent before (chosen by the caller, or sent again after a lost reply).
-- p_alone: as in `engine.send_lane_jobs`.
-- Returns the ids that existed already, or that several of these jobs have: only the first one is inserted. It fails if
-- one of them is of another task.
create or replace function engine.send_jobs(
  p_lanes json, p_ids uuid[], p_lane_ix integer[], p_inputs text, p_extras text, p_known boolean, p_alone boolean)
returns setof uuid language plpgsql
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  v_now timestamptz := sluice.now();
  v_xid xid8 := pg_current_xact_id();
  v_new uuid[];
  v_old uuid[];
  v_classes bigint[];
  v_scheduled boolean;
  v_count integer;  -- jobs of lanes that are not blocked
begin
  with fresh as (
    insert into sluice.job (id, lane, priority, created_at, due_at, task, queue, fair, buckets, costs, tags, input,
      weight, expires_at, once, on_failed, ruled)
    select j.id, l.lane, l.priority, v_now, case when d.due > v_now then d.due end, l.task, l.queue, l.fair,
           string_to_array(l.buckets, E'\x1f'), translate(x.extra ->> 'costs', '[]', '{}')::integer[],
           string_to_array(x.extra ->> 'tags', E'\x1f'), j.input::jsonb,
           nullif(l.weight, 1), greatest(d.due, v_now) + make_interval(secs => (x.extra ->> 'waitUs')::bigint / 1e6),
           (x.extra ->> 'once')::boolean, x.extra ->> 'onFailed', x.extra -> 'ruled'
    from unnest(p_ids, p_lane_ix, string_to_array(p_inputs, E'\n'), string_to_array(p_extras, E'\n'))
      with ordinality j (id, ix, input, extra, ord)
    join rows from (json_to_recordset(p_lanes) as (
      lane bigint, queue text, task text, priority integer, weight integer, fair text, buckets text)) with ordinality
      l (lane, queue, task, priority, weight, fair, buckets, ix) on l.ix = j.ix
    cross join lateral (select j.extra::jsonb as extra offset 0) x  -- read once, not in each expression
    -- A job that is due already is not scheduled.
    cross join lateral (
      select coalesce(v_now + make_interval(secs => (x.extra ->> 'delayUs')::bigint / 1e6),
        to_timestamp((x.extra ->> 'atUs')::bigint / 1e6)) as due) d
    order by j.ord
    on conflict (id) do nothing
    returning id, lane, seq, due_at, queue, task, buckets
  ), arrived as (
    insert into sluice.arrival (xid, class, lane, pos, n)
    select v_xid, c.class, f.lane, f.pos, f.n
    from (select lane, min(seq) as pos, count(*) as n, min(queue) as queue, min(task) as task, min(buckets) as buckets
          from fresh where due_at is null group by lane) f
    cross join lateral engine.find_arrival_classes(f.queue, f.task, f.buckets) c
    returning class, lane, n
  ), ready as (
    select class, n from arrived
    where not p_alone or exists (select 1 from sluice.idle) and not exists (select from engine.blocked_lane(lane))
  )
  select array_agg(id), bool_or(due_at is not null), (select array_agg(distinct class) from ready),
         (select sum(n) from ready)
  into v_new, v_scheduled, v_classes, v_count from fresh;
  if p_known then
    perform engine.delete_repeated_jobs(v_new);
    v_old := array(select i.id from unnest(p_ids) i (id) group by i.id
      having count(*) > 1 or i.id <> all (coalesce(v_new, '{}'))
        or not exists (select 1 from sluice.job j where j.id = i.id offset 0));
    if cardinality(v_old) > 0 then
      perform engine.check_tasks_of_ids(
        array_agg(j.id), array_agg(concat_ws(E'\x1f', l.lane ->> 'task', j.extra::jsonb ->> 'formerly')))
      from unnest(p_ids, p_lane_ix, string_to_array(p_extras, E'\n')) j (id, ix, extra)
      join json_array_elements(p_lanes) with ordinality l (lane, ix) on l.ix = j.ix where j.id = any (v_old);
    end if;
    return query select unnest(v_old);
  end if;
  if v_new is null or p_alone is null then return; end if;
  if v_classes is null and not v_scheduled then return; end if;  -- nobody is idle, or all lanes are blocked
  -- All are notified of a scheduled job, because they may have planned to wake after it, and of jobs of several
  -- classes, because a few workers could all serve the same one.
  if not p_alone or v_scheduled or 0 = any (v_classes) or cardinality(v_classes) > 1 then
    perform engine.wake_queues(array(select l ->> 'queue' from json_array_elements(p_lanes) l));
  else perform engine.wake_workers(v_classes, greatest(2, v_count)); end if;
end $$;

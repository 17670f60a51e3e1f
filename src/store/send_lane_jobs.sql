-- Inserts new jobs of one lane that have nothing but an input: `engine.send_jobs` for the common case, at half the
-- cost.
-- p_class: the lane's class; null when only the store can compute it.
-- p_lane, p_queue, p_task, p_priority, p_weight, p_fair, p_buckets: the lane, as in `engine.send_jobs`.
-- p_ids: ids that the sender made and has never sent before.
-- p_inputs: inputs as JSON, one a line.
-- p_alone: true: the transaction commits at once, so as many workers as there are jobs are notified, two at least, and
-- none if the lane is blocked (`engine.is_lane_blocked`); false: it commits later, when other workers may be idle and
-- the lane is blocked no longer, so all of them are notified; null: none is notified.
create or replace function engine.send_lane_jobs(
  p_class bigint, p_lane bigint, p_queue text, p_task text, p_priority integer, p_weight integer, p_fair text,
  p_buckets text, p_ids uuid[], p_inputs text, p_alone boolean)
returns void language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
  v_buckets text[] := string_to_array(p_buckets, E'\x1f');
  v_class bigint := coalesce(p_class, engine.class_id(p_queue, p_task, v_buckets));
  v_pos bigint;
  v_known boolean;
  v_idle boolean;
begin
  -- Starting a statement costs more than running it, so there are few: a single job needs no scan, and the insert also
  -- reads what `engine.find_arrival_classes` and `engine.wake_queues` read first.
  if cardinality(p_ids) = 1 then
    insert into sluice.job (id, lane, priority, created_at, task, queue, fair, buckets, input, weight)
    values (p_ids[1], p_lane, p_priority, v_now, p_task, p_queue, p_fair, v_buckets, p_inputs::jsonb,
      nullif(p_weight, 1))
    returning seq into v_pos;
    insert into sluice.arrival (xid, class, lane, pos, n) values (pg_current_xact_id(), v_class, p_lane, v_pos, 1)
    returning exists (select 1 from sluice.class c where c.id = v_class and c.retired is null),
              exists (select 1 from sluice.idle) and not (p_alone and engine.is_lane_blocked(p_lane))
    into v_known, v_idle;
  else
    with fresh as (
      insert into sluice.job (id, lane, priority, created_at, task, queue, fair, buckets, input, weight)
      select j.id, p_lane, p_priority, v_now, p_task, p_queue, p_fair, v_buckets, j.input::jsonb, nullif(p_weight, 1)
      from unnest(p_ids, string_to_array(p_inputs, E'\n')) j (id, input)
      returning seq
    )
    insert into sluice.arrival (xid, class, lane, pos, n)
    select pg_current_xact_id(), v_class, p_lane, min(seq), count(*) from fresh
    returning pos, exists (select 1 from sluice.class c where c.id = v_class and c.retired is null),
              exists (select 1 from sluice.idle) and not (p_alone and engine.is_lane_blocked(p_lane))
    into v_pos, v_known, v_idle;
  end if;
  if not v_known then
    insert into sluice.arrival (xid, class, lane, pos, n)
    values (pg_current_xact_id(), 0, p_lane, v_pos, cardinality(p_ids));
  end if;
  if not v_idle or p_alone is null then return; end if;
  if v_known and p_alone then perform engine.wake_workers(array[v_class], greatest(2, cardinality(p_ids)));
  else perform engine.wake_queues(array[p_queue]); end if;
end $$;

-- Records new jobs of one lane that have nothing but an input: `send` for what most senders send, at half the cost.
-- p_class: of the lane, null when only the store knows it; p_lane … p_takes: as `send` has them; p_ids: made by the sender,
-- never sent before; p_inputs: JSON, a line each; p_alone: it commits at once, so that as many workers as there are jobs are notified; false: later, and who
-- is idle then nobody knows yet; null: nobody is notified.
create or replace function engine.send_lane(
  p_class bigint, p_lane bigint, p_queue text, p_task text, p_priority integer, p_weight integer, p_fair text, p_takes text,
  p_ids uuid[], p_inputs text, p_alone boolean)
returns void language plpgsql as $$
declare
  v_now timestamptz := sluice.now();
  v_takes text[] := string_to_array(p_takes, E'\x1f');
  v_class bigint := coalesce(p_class, engine.class_id(p_queue, p_task, v_takes));
  v_pos bigint;
  v_known boolean;
  v_idle boolean;
begin
  -- Starting up a statement takes longer than what it does, so there are few: one alone needs no scan, and what heard
  -- and wake ask first is asked on the way.
  if cardinality(p_ids) = 1 then
    insert into sluice.job (id, lane, priority, created_at, task, queue, fair, takes, input, weight)
    values (p_ids[1], p_lane, p_priority, v_now, p_task, p_queue, p_fair, v_takes, p_inputs::jsonb, nullif(p_weight, 1))
    returning seq into v_pos;
    insert into sluice.arrival (xid, class, lane, pos, n) values (pg_current_xact_id(), v_class, p_lane, v_pos, 1)
    returning exists (select 1 from sluice.class c where c.id = v_class and c.retired is null), exists (select 1 from sluice.idle) into v_known, v_idle;
  else
    with fresh as (
      insert into sluice.job (id, lane, priority, created_at, task, queue, fair, takes, input, weight)
      select j.id, p_lane, p_priority, v_now, p_task, p_queue, p_fair, v_takes, j.input::jsonb, nullif(p_weight, 1)
      from unnest(p_ids, string_to_array(p_inputs, E'\n')) j (id, input)
      returning seq
    )
    insert into sluice.arrival (xid, class, lane, pos, n)
    select pg_current_xact_id(), v_class, p_lane, min(seq), count(*) from fresh
    returning pos, exists (select 1 from sluice.class c where c.id = v_class and c.retired is null), exists (select 1 from sluice.idle)
    into v_pos, v_known, v_idle;
  end if;
  if not v_known then
    insert into sluice.arrival (xid, class, lane, pos, n) values (pg_current_xact_id(), 0, p_lane, v_pos, cardinality(p_ids));
  end if;
  if not v_idle or p_alone is null then return; end if;
  if v_known and p_alone then perform engine.call(array[v_class], cardinality(p_ids) + 1);
  else perform engine.wake(array[p_queue]); end if;
end $$;

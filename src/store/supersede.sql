-- Records a job that replaces the one which brought its idempotency key before: replace and send in one statement, so
-- that a waiting job's row is held for no longer than that. p_task … p_seconds: as replace has them; the others as send
-- does, of one job. Returns the id that holds.
create or replace function engine.supersede(
  p_task text, p_key text, p_id uuid, p_seconds integer,
  p_lanes bigint[], p_queues text[], p_tasks text[], p_priorities integer[], p_weights integer[], p_fairs text[], p_takes text[],
  p_ids uuid[], p_lane_ix integer[], p_inputs text, p_delays_us bigint[], p_ats_us bigint[], p_tags text[], p_extras text[],
  p_known boolean, p_notify boolean) returns uuid language plpgsql as $$
declare
  v_id uuid := engine.replace(p_task, p_key, p_id, p_seconds);
begin
  perform engine.send(p_lanes, p_queues, p_tasks, p_priorities, p_weights, p_fairs, p_takes, array[v_id], p_lane_ix, p_inputs,
    p_delays_us, p_ats_us, p_tags, p_extras, p_known, p_notify);
  return v_id;
end $$;

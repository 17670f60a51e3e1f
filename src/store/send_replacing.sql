-- Inserts a job that replaces the one which has its idempotency key: `engine.replace_job` and `engine.send_jobs` in one
-- statement, so that the replaced job's row is locked only for that long.
-- p_key, p_seconds: as in `engine.replace_job`.
-- Other parameters: as in `engine.send_jobs`, for one job.
-- Returns the id that the new job has.
create or replace function engine.send_replacing(
  p_key text, p_seconds integer, p_lanes json, p_ids uuid[], p_lane_ix integer[], p_inputs text, p_extras text,
  p_known boolean, p_alone boolean) returns uuid language plpgsql as $$
declare
  v_id constant uuid := engine.replace_job(p_lanes -> 0 ->> 'task', p_key, p_ids[1], p_seconds);
begin
  perform engine.send_jobs(p_lanes, array[v_id], p_lane_ix, p_inputs, p_extras, p_known, p_alone);
  return v_id;
end $$;

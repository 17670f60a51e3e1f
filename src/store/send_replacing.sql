-- Inserts a job that replaces the one which has its idempotency key: `engine.replace_job` and `engine.send_jobs` in one
-- statement, so that the replaced job's row is locked only for that long.
-- p_task, p_key, p_id, p_seconds: as in `engine.replace_job`.
-- p_lanes and the following: as in `engine.send_jobs`, for one job.
-- Returns the id that the new job has.
create or replace function engine.send_replacing(
  p_task text, p_key text, p_id uuid, p_seconds integer,
  p_lanes bigint[], p_queues text[], p_tasks text[], p_priorities integer[], p_weights integer[], p_fairs text[],
  p_takes text[], p_ids uuid[], p_lane_ix integer[], p_inputs text, p_delays_us bigint[], p_ats_us bigint[],
  p_tags text[], p_extras text[], p_known boolean, p_alone boolean) returns uuid language plpgsql as $$
declare
  v_id uuid := engine.replace_job(p_task, p_key, p_id, p_seconds);
begin
  perform engine.send_jobs(p_lanes, p_queues, p_tasks, p_priorities, p_weights, p_fairs, p_takes, array[v_id],
    p_lane_ix, p_inputs, p_delays_us, p_ats_us, p_tags, p_extras, p_known, p_alone);
  return v_id;
end $$;

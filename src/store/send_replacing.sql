-- Inserts a job that replaces the one which has its idempotency key: `engine.replace_job` and `engine.send_jobs` in one
-- statement, so that the replaced job's row is locked only for that long.
-- p_key, p_seconds: as in `engine.replace_job`.
-- p_job: the job, as JSON: the parameters of `engine.send_jobs` that have one element for each lane or job, but the
-- input, each under its name in the singular; and `alone`.
-- p_input: its input as JSON, in one line.
-- p_known: as in `engine.send_jobs`.
-- Returns the id that the new job has.
create or replace function engine.send_replacing(
  p_key text, p_seconds integer, p_job jsonb, p_input text, p_known boolean) returns uuid language plpgsql as $$
declare
  j record;
  v_id uuid;
begin
  select * into j from jsonb_to_record(p_job) r (
    lane bigint, queue text, task text, priority integer, weight integer, fair text, takes text, id uuid,
    delay_us bigint, at_us bigint, tags text, extra text, alone boolean);
  v_id := engine.replace_job(j.task, p_key, j.id, p_seconds);
  perform engine.send_jobs(array[j.lane], array[j.queue], array[j.task], array[j.priority], array[j.weight],
    array[j.fair], array[j.takes], array[v_id], array[1], p_input, array[j.delay_us], array[j.at_us], array[j.tags],
    array[j.extra], p_known, j.alone);
  return v_id;
end $$;

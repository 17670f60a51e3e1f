-- Deletes a portion of the jobs whose retention is over from the two tables for late jobs: those that finished after
-- the partition of their day was dropped.
-- p_done_ms, p_failed_ms: how long finished and failed jobs are kept.
-- more: there may be more of them.
-- gone: how many were deleted.
create or replace function engine.delete_late_jobs(
  p_done_ms bigint, p_failed_ms bigint, p_cap bigint, out more boolean, out gone bigint)
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_portion constant integer := 10000;
  v_done_before timestamptz := engine.store_time_ago(p_done_ms, p_cap);
  v_failed_before timestamptz := engine.store_time_ago(p_failed_ms, p_cap);
  v_failed bigint;
begin
  gone := 0;
  if not pg_try_advisory_xact_lock(1397511523, -2) then return; end if;  -- lock: old rows
  delete from sluice.done_late where ctid = any (array(
    select ctid from sluice.done_late where finished_at < v_done_before limit v_portion));
  get diagnostics gone = row_count;
  delete from sluice.failed_late where ctid = any (array(
    select ctid from sluice.failed_late where finished_at < v_failed_before limit v_portion));
  get diagnostics v_failed = row_count;
  more := greatest(gone, v_failed) = v_portion;
  gone := gone + v_failed;
end $$;

-- Deletes jobs that finished more than p_keep_days ago from the tables for what finished after its day's partition was
-- dropped: a portion of each. True when there may be more.
create or replace function sluice.late_v1(p_keep_days integer) returns boolean language plpgsql
  set enable_seqscan = off set jit = off as $$
declare
  v_portion constant integer := 10000;
  v_before timestamptz := sluice.now() - make_interval(days => p_keep_days);
  v_done integer;
  v_failed integer;
begin
  if not pg_try_advisory_xact_lock(1397511523, -2) then return false; end if;
  delete from sluice.done_late where ctid = any (array(
    select ctid from sluice.done_late where finished_at < v_before limit v_portion));
  get diagnostics v_done = row_count;
  delete from sluice.failed_late where ctid = any (array(
    select ctid from sluice.failed_late where finished_at < v_before limit v_portion));
  get diagnostics v_failed = row_count;
  return greatest(v_done, v_failed) = v_portion;
end $$;

-- Deletes a portion of the events that are older than they are kept.
-- p_keep_ms: how long they are kept.
-- more: there may be more of them.
-- gone: how many were deleted.
create or replace function engine.delete_old_events(p_keep_ms bigint, p_cap bigint, out more boolean, out gone bigint)
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_portion constant integer := 10000;
  v_before timestamptz := engine.store_time_ago(p_keep_ms, p_cap);
begin
  gone := 0;
  if not pg_try_advisory_xact_lock(1397511523, -2) then return; end if;  -- lock: old rows
  -- Ids begin with the emitter's time; one that a user chose may be a day off.
  delete from sluice.emitted where id in (
    select id from sluice.emitted where id < engine.id_floor((extract(epoch from v_before) * 1000)::bigint)
    order by id limit v_portion);
  get diagnostics gone = row_count;
  more := gone = v_portion;
end $$;

-- Deletes a portion of the expired idempotency keys.
-- more: there may be more of them.
-- gone: how many were deleted.
create or replace function engine.delete_idempotency_keys(p_cap bigint, out more boolean, out gone bigint)
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_portion constant integer := 10000;
  v_now timestamptz := engine.earliest_store_time(86400000, p_cap);  -- a key is kept for a day
begin
  gone := 0;
  if not pg_try_advisory_xact_lock(1397511523, -2) then return; end if;  -- lock: old rows
  delete from sluice.idempotency where ctid = any (array(
    select ctid from sluice.idempotency where expires_at < v_now
    order by expires_at limit v_portion for update skip locked));
  get diagnostics gone = row_count;
  more := gone = v_portion;
end $$;

-- Deletes a portion of the idempotency keys whose time is over. True when there may be more.
create or replace function sluice.lapse_v1() returns boolean language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_portion constant integer := 10000;
  v_now timestamptz := sluice.now();
  v_count integer;
begin
  if not pg_try_advisory_xact_lock(1397511523, -2) then return false; end if;
  delete from sluice.idempotency where ctid = any (array(
    select ctid from sluice.idempotency where expires_at < v_now order by expires_at limit v_portion for update skip locked));
  get diagnostics v_count = row_count;
  return v_count = v_portion;
end $$;

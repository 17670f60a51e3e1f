-- Forgets what dispatch has dealt with: a portion of the arrivals that the last absorption saw, and older notes of
-- absorptions. True when there may be more.
create or replace function sluice.sweep_v1() returns boolean language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_portion constant integer := 20000;
  v_last sluice.absorbed;
  v_count integer;
begin
  if not pg_try_advisory_xact_lock(1397511523, -4) then return false; end if;
  select * into v_last from sluice.absorbed order by n desc limit 1;
  if not found then return false; end if;
  -- Everything older than the oldest transaction that was open then has been read.
  delete from sluice.arrival where ctid = any (array(
    select ctid from sluice.arrival where xid < pg_snapshot_xmin(v_last.snap) and xid <> v_last.xid order by xid limit v_portion));
  get diagnostics v_count = row_count;
  delete from sluice.absorbed where n < v_last.n - 10;
  return v_count = v_portion;
end $$;

-- Forgets what dispatch has dealt with: arrivals that the last absorption saw, and older notes of absorptions.
create or replace function sluice.sweep_v1() returns void language plpgsql as $$
declare
  v_last sluice.absorbed;
begin
  select * into v_last from sluice.absorbed order by n desc limit 1;
  if not found then return; end if;
  -- Everything older than the oldest transaction that was open then has been read.
  delete from sluice.arrival where ctid = any (array(
    select ctid from sluice.arrival where xid < pg_snapshot_xmin(v_last.snap) and xid <> v_last.xid order by xid limit 20000));
  delete from sluice.absorbed where n < v_last.n - 10;
end $$;

-- Forgets what dispatch has dealt with: arrivals that the last absorption of their class saw, and older notes of
-- absorptions.
create or replace function sluice.sweep_v1() returns void language plpgsql as $$
declare
  v_last sluice.absorbed;
begin
  for v_last in
    select b.* from (select 0::bigint as id union all select id from sluice.class) c
    cross join lateral (select * from sluice.absorbed where class = c.id order by n desc limit 1) b
  loop
    -- Everything older than the oldest transaction that was open then has been read.
    delete from sluice.arrival where ctid = any (array(
      select ctid from sluice.arrival where class = v_last.class and xid < pg_snapshot_xmin(v_last.snap) and xid <> v_last.xid
      order by xid limit 20000));
    delete from sluice.absorbed where class = v_last.class and n < v_last.n - 10;
  end loop;
end $$;

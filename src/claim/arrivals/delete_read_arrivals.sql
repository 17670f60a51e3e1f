-- Deletes what claims have read: for each class a portion of the arrivals that were read, and older states.
-- Returns true when there may be more.
create or replace function engine.delete_read_arrivals()
returns boolean language plpgsql set enable_seqscan = off set jit = off as $$
declare
  v_portion constant integer := 20000;
  v_last sluice.class_state;
  v_count integer;
  v_more boolean := false;
begin
  if not pg_try_advisory_xact_lock(1397511523, -4) then return false; end if;  -- lock: arrivals
  for v_last in
    select b.* from (select 0::bigint as id union all select id from sluice.class) c
    cross join lateral (select * from sluice.class_state where class = c.id order by n desc limit 1) b
  loop
    -- Arrivals of transactions older than the oldest one that was in progress at the last reading have been read.
    delete from sluice.arrival where ctid = any (array(
      select ctid from sluice.arrival
      where class = v_last.class and xid < pg_snapshot_xmin(v_last.snap)
      order by xid limit v_portion));
    get diagnostics v_count = row_count;
    v_more := v_more or v_count = v_portion;
    delete from sluice.class_state where class = v_last.class and n < v_last.n - 10;
  end loop;
  return v_more;
end $$;

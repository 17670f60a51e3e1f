-- What has arrived for a class since it was last asked, by lanes; that is taken in with it, so whoever asks deals with it. Call
-- under the class's lock. New means: not visible in the last asker's snapshot, so a late commit is never missed, and nothing is
-- told twice. Arrivals of the transaction itself are left to the next asker. future: the last snapshot is of transactions to
-- come, since the data were restored into a server with younger ones; nothing was read.
create or replace function engine.fresh(p_class bigint) returns engine.fresh language plpgsql as $$
declare
  v_last sluice.absorbed;
  v_snap pg_snapshot;
  v_fresh engine.fresh;
begin
  select * into v_last from sluice.absorbed where class = p_class order by n desc limit 1;
  v_fresh.future := coalesce(pg_snapshot_xmax(v_last.snap) > pg_snapshot_xmax(pg_current_snapshot()), false);
  if v_fresh.future then return v_fresh; end if;
  select pg_current_snapshot(), array_agg(lane order by lane), array_agg(pos order by lane), array_agg(count order by lane)
  into v_snap, v_fresh.lanes, v_fresh.bounds, v_fresh.counts
  from (
    select lane, min(pos) as pos, sum(n)::bigint as count from (
      select lane, pos, n from sluice.arrival
      where class = p_class and xid >= coalesce(pg_snapshot_xmax(v_last.snap), '0'::xid8) and xid <> pg_current_xact_id()
      union all
      select a.lane, a.pos, a.n
      from (select pg_snapshot_xip(v_last.snap) as xid union select v_last.xid) missed
      join sluice.arrival a on a.class = p_class and a.xid = missed.xid
      where missed.xid < pg_snapshot_xmax(v_last.snap)
    ) fresh group by lane
  ) lanes;
  if v_fresh.lanes is null then return v_fresh; end if;
  insert into sluice.absorbed (class, n, snap, xid) values (p_class, coalesce(v_last.n, 0) + 1, v_snap, pg_current_xact_id());
  return v_fresh;
end $$;

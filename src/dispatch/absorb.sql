-- Takes in what has arrived since the last absorption: counts, seek bounds, new lanes. One absorber at a time; the
-- others go on without. New means: not visible in the last absorber's snapshot, so a late commit is never missed,
-- and nothing that was absorbed is read again. Its own transaction's arrivals are left to the next absorber.
create or replace function sluice.absorb_v1() returns void language plpgsql
  as $$
declare
  v_last sluice.absorbed;
  v_snap pg_snapshot;
  v_lanes bigint[];
  v_bounds bigint[];
  v_counts bigint[];
begin
  if not pg_try_advisory_xact_lock(1397511523, -1) then return; end if;
  select * into v_last from sluice.absorbed order by n desc limit 1;
  select pg_current_snapshot(), array_agg(lane order by lane), array_agg(pos order by lane), array_agg(count order by lane)
  into v_snap, v_lanes, v_bounds, v_counts
  from (
    select lane, min(pos) as pos, sum(n)::bigint as count from (
      select lane, pos, n from sluice.arrival
      where xid >= coalesce(pg_snapshot_xmax(v_last.snap), '0'::xid8) and xid <> pg_current_xact_id()
      union all
      select a.lane, a.pos, a.n
      from (select pg_snapshot_xip(v_last.snap) as xid union select v_last.xid) missed
      join sluice.arrival a on a.xid = missed.xid
      where missed.xid < pg_snapshot_xmax(v_last.snap)
    ) fresh group by lane
  ) lanes;
  if v_lanes is null then return; end if;
  insert into sluice.absorbed (n, snap, xid) values (coalesce(v_last.n, 0) + 1, v_snap, pg_current_xact_id());
  perform sluice.found_v1(v_lanes, v_bounds);
  update sluice.lane l set
    n = l.n + a.count,
    bound = least(l.bound, a.bound),
    list = coalesce(l.list, 0),
    vstart = case when l.list is null then sluice.rejoin_v1(l) else l.vstart end
  from unnest(v_lanes, v_bounds, v_counts) a (id, bound, count)
  where l.id = a.id;
end $$;

-- Takes in what has arrived since the last absorption: counts, seek bounds, new lanes. One absorber at a time. New
-- means: not visible in the last absorber's snapshot, so a late commit is never missed, and nothing that was absorbed is
-- read again. Its own transaction's arrivals are left to the next absorber. Returns true when another absorbs and there
-- is something that it may not have seen: then it is worth looking again.
create or replace function sluice.absorb_v1() returns boolean language plpgsql as $$
declare
  v_last sluice.absorbed;
  v_snap pg_snapshot;
  v_lanes bigint[];
  v_bounds bigint[];
  v_counts bigint[];
begin
  select * into v_last from sluice.absorbed order by n desc limit 1;
  if not pg_try_advisory_xact_lock(1397511523, -1) then
    return exists (select 1 from sluice.arrival where xid >= pg_snapshot_xmax(v_last.snap));
  end if;
  -- Again, under the lock. A snapshot from the future: the data were restored into a server with younger transactions.
  select * into v_last from sluice.absorbed order by n desc limit 1;
  if v_last.snap is not null and pg_snapshot_xmax(v_last.snap) > pg_snapshot_xmax(pg_current_snapshot()) then
    perform sluice.recount_v1();
    return true;
  end if;
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
  if v_lanes is null then return false; end if;
  insert into sluice.absorbed (n, snap, xid) values (coalesce(v_last.n, 0) + 1, v_snap, pg_current_xact_id());
  perform sluice.found_v1(v_lanes, v_bounds);
  -- The virtual start of a lane that has jobs again: not before those who have been waiting (no credit for idleness), and
  -- at most 64 turns behind them (no lasting debt for having been alone). Each list's front is looked up once.
  with own as (
    select s.id, s.class, u.list from sluice.lane s
    cross join lateral (select 0::bigint as list union all select unnest(s.buckets)) u
    where s.id = any (v_lanes) and s.list is null
  ), front as materialized (
    select d.class, d.list, (select o.vstart from sluice.lane o where o.class = d.class and o.list = d.list order by o.vstart limit 1)
    from (select distinct class, list from own) d
  ), turn as (
    select own.id, min(f.vstart) as front from own join front f using (class, list) group by own.id
  )
  update sluice.lane l set
    n = l.n + a.count,
    bound = least(l.bound, a.bound),
    list = coalesce(l.list, 0),
    vstart = case when l.list is null then coalesce(greatest(t.front, least(l.vstart, t.front + 64000000)), l.vstart) else l.vstart end
  from unnest(v_lanes, v_bounds, v_counts) a (id, bound, count)
  left join turn t on t.id = a.id
  where l.id = a.id;
  -- Lanes that begin to wait together were not compared with each other yet: here, too, nobody is more than 64 turns behind.
  if cardinality(v_lanes) > 1 then
    update sluice.lane l set vstart = f.front + 64000000
    from (
      select c.class, h.vstart as front
      from (select distinct s.class from sluice.lane s where s.id = any (v_lanes)) c
      cross join lateral (select o.vstart from sluice.lane o where o.class = c.class and o.list = 0 order by o.vstart limit 1) h
    ) f
    where l.id = any (v_lanes) and l.class = f.class and l.list = 0 and l.vstart > f.front + 64000000;
  end if;
  return false;
end $$;

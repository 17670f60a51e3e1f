-- Those of these classes for which there may be something to do: arrivals, ready lanes, or lists that are due. Also those
-- whose last absorption is from the future: see absorb. Unlocked.
create or replace function engine.active(p_classes bigint[], p_now bigint, p_since bigint) returns bigint[]
language plpgsql stable as $$
begin
  return array(
    select c from unnest(p_classes) c
    left join lateral (select snap, xid from sluice.absorbed where class = c order by n desc limit 1) b on true
    where pg_snapshot_xmax(b.snap) > pg_snapshot_xmax(pg_current_snapshot())
       or exists (select 1 from sluice.arrival where class = c and xid >= coalesce(pg_snapshot_xmax(b.snap), '0'::xid8))
       or exists (select 1 from (select pg_snapshot_xip(b.snap) as xid union select b.xid) m
                  join sluice.arrival a on a.class = c and a.xid = m.xid where m.xid < pg_snapshot_xmax(b.snap))
       or exists (select 1 from sluice.list where class = c and due > p_since and due <= p_now)
       or exists (select 1 from (select floor from sluice.list where class = c and id = 0 order by v desc limit 1) l
                  join sluice.turn t on t.class = c and t.list = 0 and t.vstart >= l.floor));
end $$;

-- The next portion of what has arrived for a class: read_arrivals.sql says of what, and has done with the ordinary case. Rows are
-- read in the order (xid, lane, pos) from where the last portion ended (p_was), p_most of them and those that are like the last.
create or replace function engine.read_portion(p_class bigint, p_was sluice.class_state, p_own xid8, p_most integer) returns engine.news
language plpgsql as $$
declare
  v_news engine.news;
  v_count integer;
  v_target pg_snapshot;
  v_state sluice.class_state := p_was;
  v_xids xid8[];
  v_lanes bigint[];
  v_pos bigint[];
begin
  with missed as (
    select x as xid from pg_snapshot_xip(p_was.snap) x union select p_was.xid where p_was.xid < pg_snapshot_xmax(p_was.snap)
  ), unread as materialized (
    select a.xid, a.lane, a.pos, a.n from (
      select a.* from missed m cross join lateral (
        select a.xid, a.lane, a.pos, a.n from sluice.arrival a where a.class = p_class and a.xid = m.xid and a.xid >= coalesce(p_was.at_xid, '0'::xid8)) a
      union all
      select a.xid, a.lane, a.pos, a.n from sluice.arrival a
      where a.class = p_class and a.xid >= greatest(pg_snapshot_xmax(p_was.snap), p_was.at_xid, '0'::xid8) and a.xid is distinct from p_own) a
    where p_was.target is null or (pg_visible_in_snapshot(a.xid, p_was.target)
                                   and (a.xid, a.lane, a.pos) > (p_was.at_xid, p_was.at_lane, p_was.at_pos))
    order by a.xid, a.lane, a.pos fetch first p_most rows with ties
  )
  select engine.own_snapshot(p_own), array_agg(g.lane), array_agg(g.pos), array_agg(g.n), sum(g.rows)::integer,
         (select array_agg(u.xid order by u.xid, u.lane, u.pos) from unread u), (select array_agg(u.lane order by u.xid, u.lane, u.pos) from unread u),
         (select array_agg(u.pos order by u.xid, u.lane, u.pos) from unread u)
  into v_target, v_news.lanes, v_news.bounds, v_news.counts, v_count, v_xids, v_lanes, v_pos
  from (select lane, min(pos) as pos, sum(n)::bigint as n, count(*) as rows from unread group by lane) g;
  v_news.rest := coalesce(v_count >= p_most, false);
  v_state.class := p_class;
  if v_news.rest then
    v_state.target := coalesce(p_was.target, v_target);
    v_state.at_xid := v_xids[v_count];
    v_state.at_lane := v_lanes[v_count];
    v_state.at_pos := v_pos[v_count];
    if p_was.snap is null then v_state.snap := '1:1:'; end if;
  else
    v_state.snap := coalesce(p_was.target, v_target);
    v_state.target := null;
    v_state.at_xid := null;
    v_state.at_lane := null;
    v_state.at_pos := null;
  end if;
  v_news.state := v_state;
  v_news.fresh := false;
  v_news.future := false;
  return v_news;
end $$;

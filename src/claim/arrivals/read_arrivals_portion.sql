-- Reads the next portion of what has arrived for a class; `engine.read_arrivals` describes the result, and handles the
-- ordinary case itself. It reads rows in the order (xid, lane, pos), from where the last portion ended: rows of
-- transactions that were in progress in the last reader's snapshot, and later ones.
-- p_was: the state of the class
-- p_own: the id of this transaction; null: it has none yet
-- p_most: how many rows at most
create or replace function engine.read_arrivals_portion(
  p_class bigint, p_was sluice.class_state, p_own xid8, p_most integer) returns engine.news
language plpgsql as $$
declare
  v_news engine.news;
  v_state sluice.class_state := p_was;
  v_read record;  -- the lanes of the portion, and the last of its rows
  -- After the last row that was read; otherwise after all that the last reader's snapshot showed.
  v_first constant xid8 := greatest(pg_snapshot_xmax(p_was.snap), p_was.at_xid, '0'::xid8);
  v_is_same constant boolean := v_first is not distinct from p_was.at_xid;
  -- Rows that came after the target are left to a later reading.
  v_till constant xid8 := coalesce(pg_snapshot_xmax(p_was.target), '18446744073709551615'::xid8);
  v_least constant bigint := -9223372036854775808;
  v_lane constant bigint := case when v_is_same then p_was.at_lane else v_least end;
  v_at constant bigint := case when v_is_same then p_was.at_pos else v_least end;
begin
  -- At most one portion is read, in the order of the index, because the next one begins where this one ends.
  with unread as materialized (
    select b.xid, b.lane, b.pos, b.n from (
      select a.* from pg_snapshot_xip(p_was.snap) m (xid) cross join lateral (
        select a.xid, a.lane, a.pos, a.n from sluice.arrival a
        where a.class = p_class and a.xid = m.xid
          and (a.lane, a.pos) > (case when m.xid = p_was.at_xid then p_was.at_lane else v_least end,
                                 case when m.xid = p_was.at_xid then p_was.at_pos else v_least end)
        order by a.xid, a.lane, a.pos limit p_most) a where m.xid >= coalesce(p_was.at_xid, '0'::xid8)
      union all
      (select a.xid, a.lane, a.pos, a.n from sluice.arrival a
       where a.class = p_class and (a.xid, a.lane, a.pos) > (v_first, v_lane, v_at) and a.xid < v_till
         and a.xid is distinct from p_own
         and (p_was.target is null or pg_visible_in_snapshot(a.xid, p_was.target))
       order by a.xid, a.lane, a.pos limit p_most)) b
    where p_was.target is null or pg_visible_in_snapshot(b.xid, p_was.target)
    order by b.xid, b.lane, b.pos limit p_most
  )
  select g.*, u.xid, u.lane, u.pos into v_read
  from (
    select engine.snapshot_without_own(p_own) as target, array_agg(l.lane) as lanes, array_agg(l.first) as bounds,
           array_agg(l.jobs) as counts, sum(l.rows)::integer as rows
    from (select lane, min(pos) as first, sum(n)::bigint as jobs, count(*) as rows from unread group by lane) l) g
  left join (select * from unread order by xid desc, lane desc, pos desc limit 1) u on true;
  v_news.lanes := v_read.lanes; v_news.bounds := v_read.bounds; v_news.counts := v_read.counts;
  v_news.rest := coalesce(v_read.rows >= p_most, false);
  v_state.class := p_class;
  if v_news.rest then
    v_state.target := coalesce(p_was.target, v_read.target);
    v_state.at_xid := v_read.xid;
    v_state.at_lane := v_read.lane;
    v_state.at_pos := v_read.pos;
    if p_was.snap is null then v_state.snap := '1:1:'; end if;
  else
    v_state.snap := coalesce(p_was.target, v_read.target);
    v_state.target := null; v_state.at_xid := null; v_state.at_lane := null; v_state.at_pos := null;
  end if;
  v_news.state := v_state;
  v_news.fresh := false;
  return v_news;
end $$;

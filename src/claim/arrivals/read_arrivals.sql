-- Reads what has arrived for a class since the last reading, by lanes. Call under the class's lock; the caller absorbs
-- it, and records the state that is returned (`engine.record_class_states`). A row counts as arrived since then if the
-- snapshot of the last reader did not show it: so no late commit is missed, and no row is read twice. Arrivals of this
-- transaction are left to the next reader. Of more than 1,000 rows one portion is read, and the next reader goes on
-- behind it, so that a claim that finds 100,000 new lanes does not make other claims wait. When the last snapshot is
-- from the future, because the data come from another server, the next reader starts again (`engine.rebuild_arrivals`).
create or replace function engine.read_arrivals(p_class bigint) returns engine.news language plpgsql as $$
declare
  v_most constant integer := 1000;
  v_own constant xid8 := pg_current_xact_id_if_assigned();
  v_state sluice.class_state;
  v_rest boolean;
  v_lanes bigint[];
  v_bounds bigint[];
  v_counts bigint[];
  v_count bigint;
  v_snap pg_snapshot;
  v_news engine.news;
begin
  select * into v_state from sluice.class_state where class = p_class order by n desc limit 1;
  v_state.class := p_class;
  v_rest := v_state.target is not null;
  if pg_snapshot_xmax(v_state.snap) > pg_snapshot_xmax(pg_current_snapshot()) then
    v_state := null; v_state.class := p_class;
    perform engine.rebuild_arrivals(p_class);
    return (null, null, null, v_state, false, true)::engine.news;
  end if;
  if not v_rest and right(v_state.snap::text, 1) = ':' then
    -- No transaction was in progress at the last reading, as most of the time: one range of the index has all rows.
    select engine.snapshot_without_own(v_own), array_agg(a.lane), array_agg(a.pos), array_agg(a.n), sum(a.n)
    into v_snap, v_lanes, v_bounds, v_counts, v_count
    from (select lane, pos, n from sluice.arrival
          where class = p_class and xid >= pg_snapshot_xmax(v_state.snap) and xid is distinct from v_own
          limit v_most + 1) a;
    if v_lanes is null then return (null, null, null, v_state, false, false)::engine.news; end if;
  end if;
  if v_lanes is null or cardinality(v_lanes) > v_most then
    v_news := engine.read_arrivals_portion(p_class, v_state, v_own, v_most);
    if v_news.lanes is null and not v_rest then return v_news; end if;
    v_state := v_news.state; v_rest := v_news.rest;
    v_lanes := v_news.lanes; v_bounds := v_news.bounds; v_counts := v_news.counts;
    v_count := (select sum(c) from unnest(v_counts) c);
  else
    v_state.snap := v_snap;
    if cardinality(v_lanes) > 1 then
      select array_agg(g.lane), array_agg(g.pos), array_agg(g.n) into v_lanes, v_bounds, v_counts
      from (select lane, min(pos) as pos, sum(n)::bigint as n
            from unnest(v_lanes, v_bounds, v_counts) u (lane, pos, n) group by lane) g;
    end if;
  end if;
  v_state.waiting := coalesce(v_state.waiting, 0) + coalesce(v_count, 0);
  return (v_lanes, v_bounds, v_counts, v_state, true, v_rest)::engine.news;
end $$;

-- What has arrived for a class since it was last asked, by lanes. Call under the class's lock; whoever reads it deals with it, and
-- writes the state that it returns (note_classes.sql). New means: not visible in the snapshot of the last reader, so a late commit
-- is never missed, and nothing is read twice. Arrivals of this transaction are left to the next reader. Beyond 2,000 rows a
-- portion is read, and the next reader goes on behind it: a claim that finds 100,000 new lanes makes nobody wait for them.
create or replace function engine.read_arrivals(p_class bigint) returns engine.news language plpgsql as $$
declare
  v_most constant integer := 2000;
  v_own constant xid8 := pg_current_xact_id_if_assigned();
  v_news engine.news;
  v_was sluice.class_state;
  v_state sluice.class_state;
  v_all bigint[];
begin
  select * into v_was from sluice.class_state where class = p_class order by n desc limit 1;
  v_state := v_was;
  v_state.class := p_class;
  v_news.state := v_state;
  v_news.fresh := false;
  v_news.rest := v_was.target is not null;
  v_news.future := coalesce(pg_snapshot_xmax(v_was.snap) > pg_snapshot_xmax(pg_current_snapshot()), false);
  if v_news.future then return v_news; end if;
  if not v_news.rest and right(v_was.snap::text, 1) = ':' and v_was.xid >= pg_snapshot_xmax(v_was.snap) then
    -- Nothing was in progress when it was last read, as most of the time: one range of the index has all.
    select engine.own_snapshot(v_own), array_agg(a.lane), array_agg(a.pos), array_agg(a.n)
    into v_state.snap, v_news.lanes, v_news.bounds, v_news.counts
    from (select lane, pos, n from sluice.arrival
          where class = p_class and xid >= pg_snapshot_xmax(v_was.snap) and xid is distinct from v_own limit v_most + 1) a;
    if v_news.lanes is null then return v_news; end if;
  end if;
  if v_news.lanes is null or cardinality(v_news.lanes) > v_most then
    v_news := engine.read_portion(p_class, v_was, v_own, v_most);
    if v_news.lanes is null and v_was.target is null then
      v_news.fresh := false;
      return v_news;
    end if;
    v_state := v_news.state;
  elsif cardinality(v_news.lanes) > 1 then
    v_all := v_news.lanes;
    select array_agg(g.lane), array_agg(g.pos), array_agg(g.n) into v_news.lanes, v_news.bounds, v_news.counts
    from (select lane, min(pos) as pos, sum(n)::bigint as n from unnest(v_all, v_news.bounds, v_news.counts) u (lane, pos, n) group by lane) g;
  end if;
  v_state.class := p_class;
  v_state.n := coalesce(v_was.n, 0) + 1;
  v_state.xid := pg_current_xact_id();
  v_state.waiting := coalesce(v_was.waiting, 0) + coalesce((select sum(c) from unnest(v_news.counts) c), 0);
  v_news.fresh := true;
  v_news.state := v_state;
  return v_news;
end $$;

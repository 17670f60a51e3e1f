-- Claims jobs of these lanes as if there were no others, to see whether that fails; the caller rolls it back
-- (`engine.rehearse_claim`). The lanes form a class of their own. Arrivals of these lanes are absorbed first.
-- p_rehearsal: as in `engine.find_faults`
create or replace function engine.try_lanes(p_rehearsal engine.rehearsal, p_lanes bigint[]) returns void
language plpgsql as $$
declare
  v_own constant bigint := -1;
  v_now bigint := engine.limiter_now_us(p_rehearsal.cap);
  v_news engine.news := p_rehearsal.news;
  v_state sluice.class_state;
begin
  select array_agg(u.lane), array_agg(u.bound), array_agg(u.n) into v_news.lanes, v_news.bounds, v_news.counts
  from unnest(v_news.lanes, v_news.bounds, v_news.counts) u (lane, bound, n) where u.lane = any (p_lanes);
  insert into sluice.class (id, queue, task, labels, lift, grouped)
  select v_own, c.queue, c.task, c.labels, 0, c.grouped from sluice.class c where c.id = p_rehearsal.class;
  v_state.class := v_own;
  v_news.state := v_state;
  perform engine.absorb_arrivals(v_now, array[v_news]);
  update sluice.lane l set class = v_own, vstart = coalesce(l.vstart, 0)
    where l.id = any (p_lanes) and l.list is not null;
  -- Other lanes are seated by the turns in the class, also by turns of lanes that cannot be served now: so they must be
  -- small enough to compute with.
  perform max(l.vstart + 2147483647 * 1000000::bigint) from sluice.lane l where l.class = v_own;
  insert into sluice.list as k (class, id, floor, due)
  select v_own, l.list, min(l.vstart), v_now from sluice.lane l where l.class = v_own group by l.list
  on conflict (class, id, v) do update set floor = least(k.floor, excluded.floor), due = v_now;
  perform engine.try_claim(p_rehearsal, v_own, v_now);
end $$;

-- Counts for each of these takers the earlier ones in the lines of the buckets that are not among them, and what these
-- keep free for themselves: one pass over each line, because a long one takes longer to read than all else. The caller
-- has locked the buckets.
-- p_takers: in the order of the line (`engine.order_takers`).
-- Returns them with `units` and `earlier`.
create or replace function engine.count_earlier_takers(p_takers engine.taker[], p_buckets bigint[], p_now bigint)
returns engine.taker[] language plpgsql as $$
declare
  v_places constant bigint[] := array(select t.n from unnest(p_takers) t where t.n is not null order by t.n);
  v_lines constant uuid[] := array(select t.line from unnest(p_takers) t where t.line is not null);
begin
  return array(
    with line as materialized (
      -- behind: how many of the takers stand before these.
      select u.o, width_bucket(t.n, v_places) as behind, sum(t.cost) as cost, count(*) as takers
      from unnest(p_buckets) with ordinality u (b, o) join sluice.taker t on t.bucket = u.b
      where t.alive_until > p_now and t.reserves and t.id <> all (v_lines) group by 1, 2)
    select (t.line, t.n, t.wait, t.holder, t.life, t.id, t.requested_ago, t.back, t.back_units, t.ord,
      array_agg(e.cost order by e.o), array_agg(e.takers order by e.o))::engine.taker
    from unnest(p_takers) with ordinality
      t (line, n, wait, holder, life, id, requested_ago, back, back_units, ord, units, earlier, k)
    cross join lateral (
      select b.o, coalesce(sum(l.cost), 0)::bigint as cost, coalesce(sum(l.takers), 0)::bigint as takers
      from generate_subscripts(p_buckets, 1) b (o) left join line l on l.o = b.o and l.behind < t.k group by b.o) e
    group by t.k, t.line, t.n, t.wait, t.holder, t.life, t.id, t.requested_ago, t.back, t.back_units, t.ord
    order by t.k);
end $$;

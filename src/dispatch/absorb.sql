-- Takes in what has arrived for a class (p_fresh; null: it is asked for): counts, seek bounds, new lanes. Call under the class's
-- lock. What arrived for lanes beyond 2,000 is left to the next absorber, so that whoever waits for this class does not wait
-- long. Returns whether such were left. What comes to wait in vain is ended at once (doom).
create or replace function engine.absorb(p_class bigint, p_fresh engine.fresh default null) returns boolean language plpgsql as $$
declare
  v_most constant integer := 2000;
  v_fresh engine.fresh := p_fresh;
  v_lanes bigint[];
  v_bounds bigint[];
  v_counts bigint[];
  v_rest boolean;
  v_lane sluice.lane[];
  v_wait sluice.lane[];  -- of them, those that wait for a bucket
begin
  if v_fresh is null then v_fresh := engine.fresh(p_class); end if;
  if v_fresh.future then
    perform engine.recount(p_class);
    return true;
  end if;
  v_lanes := v_fresh.lanes;
  v_bounds := v_fresh.bounds;
  v_counts := v_fresh.counts;
  if v_lanes is null then return false; end if;
  v_rest := cardinality(v_lanes) > v_most;
  if v_rest then
    insert into sluice.arrival (xid, class, lane, pos, n)
    select pg_current_xact_id(), p_class, a.lane, a.pos, a.n from unnest(v_lanes, v_bounds, v_counts) with ordinality a (lane, pos, n, o)
    where a.o > v_most;
    v_lanes := v_lanes[:v_most];
    v_bounds := v_bounds[:v_most];
    v_counts := v_counts[:v_most];
  end if;
  perform engine.found(p_class, v_lanes, v_bounds);
  if p_class = 0 then return v_rest; end if;
  with moved as (
    -- Who waits already keeps the rank under which it is seated, also when a retry comes back before its head. The newest version by
    -- the index, lane by lane: two arrays joined would be compared each with each, 4 million times.
    update sluice.lane l set v = l.v + 1, n = l.n + a.count, bound = least(l.bound, a.bound), list = coalesce(l.list, 0),
      rank = coalesce(h.rank, l.rank)
    from unnest(v_lanes, v_bounds, v_counts) a (id, bound, count)
    cross join lateral (select o.id, o.v, o.list, o.priority from sluice.lane o where o.id = a.id order by o.v desc limit 1) k
    left join lateral (
      select engine.rank(coalesce(j.since, j.created_at), k.priority) as rank from sluice.job j
      where k.list is null and j.lane = k.id and j.seq >= a.bound and j.due_at is null order by j.seq limit 1) h on true
    where l.id = k.id and l.v = k.v returning l as lane, k.list as was
  )
  select coalesce(array_agg(m.lane) filter (where m.was is null), '{}'), array_agg(m.lane) filter (where m.was <> 0)
  into v_lane, v_wait from moved m;
  perform engine.enter(p_class, v_lane);
  if v_wait is not null then v_rest := engine.vain(v_wait) or v_rest; end if;
  return v_rest;
end $$;

-- The decision of a claim, in the one lock order: the classes are locked already; candidates; their buckets, waiting; the
-- clock, once. Then room is shared out, jobs are marked, buckets charged, lanes moved. p_most: how many lanes to look at.
create or replace function sluice.grant_v1(
  p_claim uuid, p_worker bigint, p_classes bigint[], p_want integer, p_cap bigint, p_since bigint, p_most integer,
  out now_us bigint, out granted integer, out again boolean, out jobs json)
language plpgsql as $$
declare
  v_cand bigint[];
  v_stored bigint[];
  v_starts bigint[];
  v_horizon bigint;
  v_cut boolean;
  v_buckets bigint[];
  v_real record;  -- what they are to this worker: resolve_v1
  v_avail bigint[];
  v_stale boolean;
  v_barred boolean := false;
  v_lane sluice.lane[];
  v_fairs bigint[];
  v_uses integer[] := '{}';
  v_from integer[] := '{1}';
  v_take integer[];
  v_blocked integer[];
  v_vstart bigint[];
begin
  granted := 0;
  again := false;
  now_us := least(sluice.now_us(), p_cap);
  select array_agg(p.lane), array_agg(p.stored), array_agg(p.vstart), min(p.horizon), coalesce(bool_or(p.cut), false)
  into v_cand, v_stored, v_starts, v_horizon, v_cut
  from sluice.pick_v1(p_classes, now_us, p_since, p_most) p;
  if v_cand is null then return; end if;
  v_lane := sluice.lane_v1(v_cand);
  v_buckets := array(select distinct b from unnest(v_lane) l, unnest(l.buckets) b order by b);
  select * into v_real from sluice.resolve_v1(p_worker, p_classes, v_buckets);
  perform sluice.lock_v1(v_real.buckets || v_real.members);
  for round in 1 .. 2 loop
    now_us := least(sluice.now_us(), p_cap);
    select array_agg(r.avail order by r.ord), bool_or(r.stale) into v_avail, v_stale from sluice.room_v1(v_real.buckets || v_real.members, now_us) r;
    exit when not v_stale or round = 2;
    perform sluice.renew_v1(v_real.buckets || v_real.members);
  end loop;
  v_avail := v_avail[:cardinality(v_buckets)];
  v_fairs := array(select distinct l.fair from unnest(v_lane) l);
  if cardinality(v_cand) = 1 and not v_cut and v_horizon is null then
    -- A lane that is alone takes what it can; nobody is compared with it.
    v_take := array[greatest(0, least(p_want, v_lane[1].n, (select min(a) from unnest(v_avail) a)))]::integer[];
    v_blocked := array[case when v_take[1] < least(p_want, v_lane[1].n) then array_position(v_avail, (select min(a) from unnest(v_avail) a)) else 0 end];
  else
    for i in 1 .. cardinality(v_lane) loop
      for u in 1 .. cardinality(v_lane[i].buckets) loop
        v_uses := v_uses || array_position(v_buckets, v_lane[i].buckets[u]);
      end loop;
      v_from := v_from || cardinality(v_uses) + 1;
    end loop;
    select s.take, s.vstart, s.blocked into v_take, v_vstart, v_blocked
    from (select array_agg(l.n order by l.ordinality) as n, array_agg(1000000 / greatest(1, l.weight) order by l.ordinality) as step,
                 array_agg(array_position(v_fairs, l.fair) order by l.ordinality) as fair from unnest(v_lane) with ordinality l) a
    cross join lateral sluice.share_v1(p_want, a.n,
      array(select (select max(v_starts[l.ordinality]) from unnest(v_lane) with ordinality l where l.fair = f) from unnest(v_fairs) f),
      a.step::bigint[], a.fair, v_from, v_uses, v_avail, v_horizon) s;
  end if;
  if v_real.labels is not null then
    -- A label bars the worker, not the lane: that stays where others find it. And looking again finds it barred again.
    v_barred := exists (select 1 from unnest(v_blocked) b where v_real.buckets[b] <> v_buckets[b]);
    v_blocked := array(select case when v_real.buckets[b] <> v_buckets[b] then 0 else b end from unnest(v_blocked) with ordinality u (b, o) order by o);
  end if;
  select m.granted, m.again, m.jobs into granted, again, jobs
  from sluice.mark_v1(p_claim, p_worker, now_us, v_lane, v_stored, v_take, v_blocked, v_buckets, v_fairs, v_vstart, v_real.labels, v_real.members) m;
  again := again or (granted < p_want and (v_cut or v_horizon is not null) and (granted > 0 or not v_barred));
end $$;

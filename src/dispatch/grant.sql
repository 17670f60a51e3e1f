-- The decision of a claim, in the one lock order: candidates unlocked; their buckets, waiting; the clock, once; their
-- lanes, skipping what another claimer holds. Then room is shared out, jobs are marked, buckets charged, lanes moved.
create or replace function sluice.grant_v1(
  p_claim uuid, p_worker bigint, p_classes bigint[], p_want integer, p_cap bigint,
  out now_us bigint, out granted integer, out again boolean, out jobs json)
language plpgsql as $$
declare
  -- One more than can be served, to know whether a lane is alone.
  v_most constant integer := least(256, p_want + 1);
  v_cand bigint[] := array(select p.id from sluice.pick_v1(p_classes, least(sluice.now_us(), p_cap), v_most) p (id));
  v_buckets bigint[];
  v_avail bigint[];
  v_lane sluice.lane[];
  v_fairs bigint[];
  v_uses integer[] := '{}';
  v_from integer[] := '{1}';
  v_take integer[];
  v_blocked integer[];
  v_vstart bigint[];
  v_cut boolean := cardinality(v_cand) = v_most;
begin
  granted := 0;
  again := false;
  now_us := least(sluice.now_us(), p_cap);
  if cardinality(v_cand) = 0 then return; end if;
  v_buckets := array(select distinct b from sluice.lane l, unnest(l.buckets) b where l.id = any (v_cand) order by b);
  perform sluice.lock_v1(v_buckets);
  now_us := least(sluice.now_us(), p_cap);
  v_lane := array(select l from sluice.lane l where l.id = any (v_cand) and l.list is not null and l.n > 0
                  order by l.vstart, l.priority desc, l.id for update skip locked);
  again := cardinality(v_lane) < cardinality(v_cand);
  if cardinality(v_lane) = 0 then return; end if;
  v_avail := array(select r.avail from sluice.room_v1(v_buckets, now_us) r order by r.ord);
  v_fairs := array(select distinct l.fair from unnest(v_lane) l);
  for i in 1 .. cardinality(v_lane) loop
    for u in 1 .. cardinality(v_lane[i].buckets) loop
      v_uses := v_uses || array_position(v_buckets, v_lane[i].buckets[u]);
    end loop;
    v_from := v_from || cardinality(v_uses) + 1;
  end loop;
  select s.take, s.vstart, s.blocked into v_take, v_vstart, v_blocked
  from (select array_agg(l.n order by o) as n, array_agg(1000000 / l.weight order by o) as step,
               array_agg(array_position(v_fairs, l.fair) order by o) as fair from unnest(v_lane) with ordinality l (
                 id, class, list, vstart, priority, bound, n, weight, fair, buckets, o)) a
  cross join lateral sluice.share_v1(p_want, a.n,
    array(select (select min(l.vstart) from unnest(v_lane) l where l.fair = f) from unnest(v_fairs) f),
    a.step::bigint[], a.fair, v_from, v_uses, v_avail,
    case when v_cut then v_lane[cardinality(v_lane)].vstart end) s;
  select m.granted, m.again, m.jobs into granted, again, jobs
  from sluice.mark_v1(p_claim, p_worker, now_us, v_lane, v_take, v_blocked, v_buckets, v_fairs,
                       case when cardinality(v_cand) > 1 or v_cut then v_vstart end) m;
  -- Less found than shared out: counts that cancels left too high. Those lanes are empty now, and others have their room.
  again := again or cardinality(v_lane) < cardinality(v_cand) or (v_cut and granted < p_want)
    or granted < (select sum(t) from unnest(v_take) t);
end $$;

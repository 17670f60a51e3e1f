-- The decision of a claim, in the one lock order: the classes are locked already; candidates; their buckets, waiting; the
-- clock, once. Then room is shared out, jobs are marked, buckets charged, lanes moved. p_most: how many lanes to look at.
create or replace function engine.grant(
  p_claim uuid, p_worker bigint, p_classes bigint[], p_want integer, p_cap bigint, p_since bigint, p_most integer,
  out now_us bigint, out granted integer, out again boolean, out jobs text)
language plpgsql as $$
declare
  v_cand bigint[];
  v_stored bigint[];
  v_starts bigint[];
  v_horizon bigint;
  v_cut boolean;
  v_buckets bigint[];
  v_real record;  -- what they are to this worker: resolve
  v_avail bigint[];
  v_units bigint[];
  v_places bigint[];
  v_most bigint[];
  v_life bigint[];
  v_rooms engine.room[];
  v_costed boolean;
  v_more boolean := false;
  v_barred boolean := false;
  v_lane sluice.lane[];
  v_fairs bigint[];
  v_take integer[];
  v_blocked integer[];
  v_vstart bigint[];
  v_of bigint[];
  v_seqs bigint[];
  v_dead boolean[];
  v_over integer[];
begin
  granted := 0;
  again := false;
  now_us := engine.limiter_us(p_cap);
  select c.lanes, c.stored, c.starts, c.horizon, c.cut into v_cand, v_stored, v_starts, v_horizon, v_cut
  from engine.choose(p_classes, p_want, now_us, p_since, p_most) c;
  if v_cand is null then return; end if;
  v_lane := engine.lane(v_cand);
  v_buckets := array(select distinct b from unnest(v_lane) l, unnest(l.buckets) b order by b);
  select * into v_real from engine.resolve(p_worker, p_classes, v_buckets);
  perform engine.lock(v_real.buckets || v_real.members);
  select y.now_us, y.avail, y.units, y.places, y.most, y.life, y.rooms
  into now_us, v_avail, v_units, v_places, v_most, v_life, v_rooms
  from engine.survey(v_real.buckets, v_real.members, v_buckets, v_cand, p_cap) y;
  v_costed := exists (select 1 from unnest(v_lane) l where l.costed);
  v_fairs := array(select distinct l.fair from unnest(v_lane) l);
  if cardinality(v_cand) = 1 and not v_cut and v_horizon is null and not v_costed then
    -- A lane that is alone takes what it can; nobody is compared with it.
    v_take := array[greatest(0, least(p_want, v_lane[1].n, (select min(a) from unnest(v_avail) a)))]::integer[];
    v_blocked := array[case when v_take[1] < least(p_want, v_lane[1].n) then array_position(v_avail, (select min(a) from unnest(v_avail) a)) else 0 end];
  else
    -- Of lanes whose jobs have costs as many are read as will do, unless few lanes take all.
    select p.take, p.vstart, p.blocked, p.of, p.seqs, p.dead, p.over, p.more
    into v_take, v_vstart, v_blocked, v_of, v_seqs, v_dead, v_over, v_more
    from engine.portion(p_want, v_lane, v_fairs, v_starts, v_buckets, v_avail, v_units, v_places, v_most,
      v_horizon, case when v_costed then 2 * p_want / cardinality(v_lane) + 1 end, now_us) p;
  end if;
  if v_real.labels is not null then
    -- A label bars the worker, not the lane: that stays where others find it. And looking again finds it barred again.
    v_barred := exists (select 1 from unnest(v_blocked) b where v_real.buckets[b] <> v_buckets[b]);
    v_blocked := array(select case when v_real.buckets[b] <> v_buckets[b] then 0 else b end from unnest(v_blocked) with ordinality u (b, o) order by o);
  end if;
  select m.granted, m.again, m.jobs into granted, again, jobs
  from engine.mark(p_claim, p_worker, now_us, v_lane, v_stored, v_take, v_blocked, v_buckets, v_life, v_fairs, v_vstart,
    v_of, v_seqs, v_dead, v_over, v_real.labels, v_real.members, v_rooms) m;
  -- Lanes whose jobs have costs stay before their bucket until the first of them fits: looking again finds the same.
  again := again or (granted < p_want and (v_cut or v_horizon is not null or v_more) and (granted > 0 or (not v_barred and (not v_costed or exists (
    select 1 from unnest(v_lane) with ordinality l where l.list is distinct from v_buckets[v_blocked[l.ordinality]])))));
end $$;

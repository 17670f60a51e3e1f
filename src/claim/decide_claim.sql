-- Decides a claim among many lanes. It selects lanes, locks their buckets, reads the clock once, divides the room,
-- marks and charges jobs, and advances the lanes. All claims take their locks in this order. The caller has locked the
-- classes. Parameters: as in `engine.claim_jobs`, and:
-- p_classes: the locked classes.
-- p_new: those in which nothing waited until now.
-- p_most: number of lanes to consider.
-- held: a job was left because another transaction has it locked.
-- of, taken: the class of each lane that was served, and how many of its jobs were claimed or had expired.
create or replace function engine.decide_claim(
  p_claim uuid, p_worker bigint, p_classes bigint[], p_new bigint[], p_want integer, p_cap bigint, p_since bigint,
  p_most integer, out now_us bigint, out granted integer, out again boolean, out jobs text, out held boolean,
  out of bigint[], out taken integer[], out probing boolean)
language plpgsql as $$
declare
  v_cand record;
  v_buckets bigint[];
  v_real record;  -- what those buckets are to this worker: engine.resolve_buckets
  v_is record;    -- what they allow: engine.read_claim_room
  v_first integer[];  -- lanes that units are reserved for, the oldest reservation first
  v_costed boolean;
  v_share record;
  v_lanes sluice.lane[];
  v_moves engine.move[];
  v_ids bigint[];
  v_blocked integer[];
begin
  granted := 0;
  again := false;
  held := false;
  now_us := engine.limiter_now_us(p_cap);
  select * into v_cand from engine.select_lanes(p_classes, p_new, p_want, now_us, p_since, p_most) c;
  v_lanes := v_cand.lanes;
  if v_lanes is null then return; end if;
  v_ids := array(select l.id from unnest(v_lanes) with ordinality l order by l.ordinality);
  v_buckets := array(select distinct b from unnest(v_lanes) l, unnest(l.buckets) b order by b);
  select * into v_real from engine.resolve_buckets(p_worker, p_classes, v_buckets);
  perform engine.lock_buckets(v_real.buckets || v_real.members);
  select * into v_is from engine.read_claim_room(v_real.buckets, v_real.members, v_buckets, v_ids, p_cap) y;
  now_us := v_is.now_us; probing := v_is.probing;
  v_costed := exists (select 1 from unnest(v_lanes) l where l.costed);
  if exists (select 1 from sluice.reservation r where r.bucket = any (v_buckets)) then
    v_first := array(
      select l.ordinality from unnest(v_lanes) with ordinality l
      join sluice.reservation r on r.class = l.class and r.lane = l.id
      group by 1 order by min(r.asked), 1);
  end if;
  select * into v_share from engine.divide_room(p_want, v_lanes, v_cand.starts, v_cand.steps, v_buckets, v_is.avail,
    v_is.units, v_is.places, v_is.most, v_cand.horizon, now_us, v_first) p;
  v_blocked := v_share.blocked;
  if v_real.labels is not null then
    -- A label without room bars the worker, not the lane: that stays where other workers find it.
    v_blocked := array(
      select case when v_real.buckets[b] <> v_buckets[b] then 0 else b end
      from unnest(v_blocked) with ordinality u (b, o) order by o);
  end if;
  select m.granted, m.jobs, m.moves into granted, jobs, v_moves
  from engine.mark_jobs(p_claim, p_worker, now_us, v_lanes, v_share.take, v_buckets, v_is.life, v_share.of,
    v_share.seqs, v_share.dead, v_share.over, v_real.labels, v_real.members, v_is.rooms) m;
  perform engine.advance_lanes(now_us, v_lanes,
    array(select s - f from unnest(v_cand.starts, v_cand.lifts) with ordinality u (s, f, o) order by o),
    v_cand.steps,
    engine.find_denying_buckets(v_lanes, v_blocked, v_buckets, v_is.units, v_is.places, v_is.rooms), v_buckets,
      v_moves);
  select array_agg(v_lanes[array_position(v_ids, m.lane)].class), array_agg(m.taken + m.late) into of, taken
  from unnest(v_moves) m;
  held := current_setting('sluice.held', true) is not distinct from 'yes';
  -- Claim again when lanes are left that were not read, or that got less than they could take because another lane had
  -- fewer jobs than it was given. A worker whose labels have no room would find them without room again.
  again := granted < p_want and (granted > 0 or v_real.labels is null or v_share.blocked = v_blocked) and (
    v_share.more
    -- Behind jobs that went away meanwhile there may be others.
    or exists (
      select 1 from unnest(v_moves) m where m.late > 0 or not held and v_real.labels is null and m.seen > m.taken)
    or ((v_cand.cut or v_cand.horizon is not null) and (granted > 0 or not v_costed))
    or exists (
      select 1 from unnest(v_moves) m
      where m.more and m.seen = m.taken + m.late and v_share.blocked[array_position(v_ids, m.lane)] = 0)
    or exists (select 1 from unnest(v_share.take, v_share.blocked) u (take, blocked) where u.take = 0 and u.blocked = 0)
      and (granted > 0 or exists (
        select 1 from unnest(v_moves) m where m.seen < v_share.take[array_position(v_ids, m.lane)])));
end $$;

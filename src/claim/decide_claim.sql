-- Decides a claim among many lanes. It selects lanes, locks their buckets, reads the clock once, divides the room,
-- marks and charges jobs, and advances the lanes. All claims take their locks in this order. The caller has locked the
-- classes.
-- p_news: what has arrived for them; it is absorbed already.
create or replace function engine.decide_claim(
  p_claimer engine.claimer, p_classes bigint[], p_news engine.news[], p_most integer) returns engine.claimed
language plpgsql as $$
declare
  v_claimed engine.claimed;
  v_new bigint[];  -- classes in which no job waited until now
  v_want constant integer := p_claimer.want;
  v_found engine.candidates;
  v_buckets bigint[];
  v_real record;  -- what those buckets are to this worker: engine.resolve_buckets
  v_room engine.claim_room;
  v_costed boolean; v_unread boolean;  -- some lanes have costs; some were not read
  v_ahead engine.ahead; v_division engine.division;
  v_lanes sluice.lane[]; v_next sluice.lane[];
  v_mark engine.marked; v_ids bigint[]; v_blocked integer[];
begin
  v_claimed.now_us := p_claimer.begun; v_claimed.granted := 0; v_claimed.again := false; v_claimed.soon := false;
  if p_claimer.ahead > p_most then
    -- More lanes only if claims grant ahead, because reading a lane costs as much as granting a job.
    p_most := case when exists (select 1 from sluice.list l where l.class = any (p_classes) and l.early_us > 0)
      then least(256, p_claimer.ahead + 1) else p_most end;
  end if;
  v_new := array(
    select (n.state).class from unnest(p_news) n where (n.state).waiting <= (select sum(c) from unnest(n.counts) c));
  v_found := engine.select_lanes(p_classes, v_new, greatest(v_want, least(p_claimer.ahead, p_most - 1)),
    p_claimer.begun, p_claimer.since, p_most);
  v_lanes := v_found.lanes;
  if v_lanes is null then return v_claimed; end if;
  select array_agg(l.id order by l.ordinality), bool_or(l.costed) into v_ids, v_costed
  from unnest(v_lanes) with ordinality l;
  v_buckets := array(select distinct b from unnest(v_lanes) l, unnest(l.buckets) b order by b);
  v_real := engine.resolve_buckets(p_claimer.worker, p_classes, v_buckets);
  perform engine.lock_buckets(v_real.buckets || v_real.members);
  v_room := engine.read_claim_room(v_real.buckets, v_real.members, v_buckets, v_ids, p_claimer.cap);
  v_claimed.now_us := v_room.now_us; v_claimed.on_trial := v_room.on_trial; v_claimed.stale := v_room.stale;
  if v_room.stale is not null then v_claimed.again := true; return v_claimed; end if;
  if v_real.labels is not null or v_costed or cardinality(p_classes) > 1 then p_claimer.ahead := null; end if;
  v_ahead := engine.grant_lanes_ahead(p_claimer, v_room, v_lanes);
  if v_ahead.instants is not null then  -- a bucket that is held now may grant its trial then
    v_claimed.on_trial := exists (select 1 from unnest(v_room.rooms) r where r.trial_us > 0);
  end if;
  v_division := engine.divide_room(
    coalesce(cardinality(v_ahead.instants), v_want), v_found, v_room, coalesce(v_ahead.rooms, v_room.rooms));
  v_blocked := array_replace(v_division.blocked, 0, coalesce(v_ahead.deciding, 0));
  v_mark := engine.mark_jobs(p_claimer, v_lanes, v_room, v_division, v_ahead, v_real.labels);
  v_claimed.granted := v_mark.granted; v_claimed.jobs := v_mark.jobs;
  v_claimed.instants := nullif(v_ahead.instants[:v_mark.granted], '{}');
  v_blocked := engine.find_denying_buckets(v_lanes, v_blocked, v_buckets, v_room.rooms);
  v_next := engine.advance_lanes(v_lanes, v_found.turns, v_found.steps, v_blocked, v_buckets, v_mark.moves);
  perform engine.update_lists(v_room.now_us, v_lanes, v_next, v_buckets[v_ahead.deciding], v_ahead.early_us);
  select array_agg(v_lanes[array_position(v_ids, m.lane)].class), array_agg(m.taken) into v_claimed.of, v_claimed.taken
  from unnest(v_mark.moves) m;
  v_claimed.soon := current_setting('sluice.met_locked', true) is not distinct from 'yes';  -- `engine.try_lock_job`
  v_unread := v_found.cut or v_found.horizon is not null;
  if v_ahead.deciding is not null then
    v_claimed.again := not v_claimed.soon and v_mark.granted < case when v_unread
      then coalesce(cardinality(v_ahead.instants), v_room.rooms[v_ahead.deciding].avail)
      else (select sum(t) from unnest(v_division.take) t) end;
  elsif v_mark.granted < v_want then
    -- Lanes with costs or a label may be denied in their places again and again. Jobs that were wanted from a lane and
    -- not taken were set aside, or have gone, so the next claim finds others. Jobs of a pool may instead have found no
    -- member, and locked jobs may be met again: so after these only a claim that granted some is followed at once.
    v_claimed.changed := (v_mark.granted > 0 or not v_claimed.soon) and (v_next is not null or v_division.more
      or v_unread and v_real.labels is null and (not v_costed or 0 = any (v_division.blocked))
      or exists (select 1 from unnest(v_mark.moves) m where m.seen = 0 or v_real.labels is null));
    v_claimed.soon := v_claimed.soon or v_unread and not v_claimed.changed;
  end if;
  v_claimed.soon := v_claimed.soon or v_mark.granted > 0 and exists (  -- a sender that saw it blocked notified nobody
    select 1 from unnest(v_next) n where n.list is null and v_lanes[array_position(v_ids, n.id)].list <> 0);
  return v_claimed;
end $$;

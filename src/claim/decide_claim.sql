-- Decides a claim among many lanes. It selects lanes, locks their buckets, reads the clock once, divides the room,
-- marks and charges jobs, and advances the lanes. All claims take their locks in this order. The caller has locked the
-- classes.
-- p_news: what has arrived for them, and is absorbed
create or replace function engine.decide_claim(
  p_claim uuid, p_worker bigint, p_classes bigint[], p_news engine.news[], p_want integer, p_begun bigint,
  p_since bigint, p_cap bigint, p_most integer, p_ahead integer default null) returns engine.served
language plpgsql as $$
declare
  v_done engine.served;
  v_new bigint[];  -- classes in which no job waited until now
  v_cand record;
  v_buckets bigint[];
  v_real record;  -- what those buckets are to this worker: engine.resolve_buckets
  v_is record;    -- what they allow: engine.read_claim_room
  v_costed boolean; v_unread boolean;  -- some lanes have costs; some were not read
  v_ahead engine.ahead; v_share record;  -- what it grants ahead of time
  v_lanes sluice.lane[]; v_next sluice.lane[];
  v_mark engine.marked; v_ids bigint[]; v_blocked integer[];
begin
  v_done.now_us := p_begun; v_done.granted := 0; v_done.again := false; v_done.soon := false;
  if p_ahead > p_most then
    -- More lanes only if claims grant ahead, because reading a lane costs as much as granting a job.
    p_most := case when exists (select 1 from sluice.list l where l.class = any (p_classes) and l.lead > 0)
      then least(256, p_ahead + 1) else p_most end;
  end if;
  v_new := array(
    select (n.state).class from unnest(p_news) n where (n.state).waiting <= (select sum(c) from unnest(n.counts) c));
  v_cand := engine.select_lanes(
    p_classes, v_new, greatest(p_want, least(p_ahead, p_most - 1)), p_begun, p_since, p_most);
  v_lanes := v_cand.lanes;
  if v_lanes is null then return v_done; end if;
  select array_agg(l.id order by l.ordinality), bool_or(l.costed) into v_ids, v_costed
  from unnest(v_lanes) with ordinality l;
  v_buckets := array(select distinct b from unnest(v_lanes) l, unnest(l.buckets) b order by b);
  v_real := engine.resolve_buckets(p_worker, p_classes, v_buckets);
  perform engine.lock_buckets(v_real.buckets || v_real.members);
  v_is := engine.read_claim_room(v_real.buckets, v_real.members, v_buckets, v_ids, p_cap);
  v_done.now_us := v_is.now_us; v_done.probing := v_is.probing; v_done.stale := v_is.stale;
  if v_is.stale is not null then v_done.again := true; return v_done; end if;
  v_ahead := engine.grant_lanes_ahead(v_lanes, v_buckets, v_is.rooms, p_want, v_is.now_us,
    case when v_real.labels is null and not v_costed and cardinality(p_classes) = 1 then p_ahead end);
  if v_ahead.instants is not null then  -- what is held now may try the vendor at an instant
    v_done.probing := exists (select 1 from unnest(v_is.rooms) r where r.probe > 0);
  end if;
  v_share := engine.divide_room(coalesce(cardinality(v_ahead.instants), p_want), v_lanes, v_cand.starts, v_cand.steps,
    v_buckets, coalesce(v_ahead.rooms, v_is.rooms), v_cand.horizon, v_is.at, v_is.first);
  v_blocked := array_replace(v_share.blocked, 0, coalesce(v_ahead.deciding, 0));
  v_mark := engine.mark_jobs(p_claim, p_worker, v_is.now_us, v_is.at, v_lanes, v_share.take, v_buckets, v_is.rooms,
    v_share.of, v_share.seqs, v_share.over, v_real.labels, v_real.members, v_ahead);
  v_done.granted := v_mark.granted; v_done.jobs := v_mark.jobs;
  v_done.instants := nullif(v_ahead.instants[:v_mark.granted], '{}');
  v_blocked := engine.find_denying_buckets(v_lanes, v_blocked, v_buckets, v_is.rooms);
  v_next := engine.advance_lanes(v_lanes, v_cand.turns, v_cand.steps, v_blocked, v_buckets, v_mark.moves);
  perform engine.update_lists(v_is.now_us, v_lanes, v_next, v_buckets[v_ahead.deciding], v_ahead.lead);
  select array_agg(v_lanes[array_position(v_ids, m.lane)].class), array_agg(m.taken) into v_done.of, v_done.taken
  from unnest(v_mark.moves) m;
  v_done.soon := current_setting('sluice.met_locked', true) is not distinct from 'yes';  -- `engine.try_lock_job`
  v_unread := v_cand.cut or v_cand.horizon is not null;
  if v_ahead.deciding is not null then
    v_done.again := not v_done.soon and v_mark.granted < case when v_unread
      then coalesce(cardinality(v_ahead.instants), v_is.rooms[v_ahead.deciding].avail)
      else (select sum(t) from unnest(v_share.take) t) end;
  elsif v_mark.granted < p_want then
    -- Lanes with costs or a label may be denied in their places again and again. Jobs that were wanted from a lane and
    -- not taken were set aside, or have gone, so the next claim finds others. Jobs of a pool may instead have found no
    -- member, and locked jobs may be met again: so after these only a claim that granted some is followed at once.
    v_done.changed := (v_mark.granted > 0 or not v_done.soon) and (v_next is not null or v_share.more
      or v_unread and v_real.labels is null and (not v_costed or 0 = any (v_share.blocked))
      or exists (select 1 from unnest(v_mark.moves) m where m.seen = 0 or v_real.labels is null));
    v_done.soon := v_done.soon or v_unread and not v_done.changed;
  end if;
  v_done.soon := v_done.soon or v_mark.granted > 0 and exists (  -- a sender that saw it blocked notified nobody
    select 1 from unnest(v_next) n where n.list is null and v_lanes[array_position(v_ids, n.id)].list <> 0);
  return v_done;
end $$;

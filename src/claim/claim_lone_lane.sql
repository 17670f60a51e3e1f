-- Serves a claim whose only active class has one lane with jobs to give, without comparing lanes. It locks
-- buckets, reads limits (`engine.read_claim_room`) and hands out jobs in the same order and way as
-- `engine.decide_claim`. The lane's jobs have no costs. It does not seat a lane that did not wait and whose arrivals
-- can all begin.
-- p_class: the class, locked; its jobs need no label and no pool.
-- p_news: what has arrived for the class.
-- served = false: this case needs `engine.decide_claim`, and nothing was changed.
create or replace function engine.claim_lone_lane(
  p_claim uuid, p_worker bigint, p_class bigint, p_news engine.news, p_want integer, p_begun bigint, p_since bigint,
  p_cap bigint, p_ahead integer) returns engine.served
language plpgsql as $$
declare
  v_done engine.served := row(p_begun, 0, false, null, false, null, false, null, null, null, null, null);
  v_front record; v_lane sluice.lane; v_next sluice.lane[]; v_is record; v_free bigint := 2147483647; v_take integer;
  v_ahead engine.ahead; v_room engine.room; v_blocked integer; v_mark engine.marked; v_move engine.move;
begin
  if p_news.rest or cardinality(p_news.lanes) > 1 then return v_done; end if;
  v_front := engine.find_front_lanes(p_class, p_begun, p_since);
  if v_front.n > 1 or v_front.lane <> p_news.lanes[1] then return v_done; end if;
  select * into v_lane from sluice.lane l
  where l.id = coalesce(v_front.lane, p_news.lanes[1]) order by l.v desc limit 1;
  -- A lane that stands behind another lane of its fair key is not alone.
  if v_lane.list is not null and v_lane.vstart is null then return v_done; end if;
  v_done.served := v_lane.id is not null or p_news.lanes is null; if v_lane.id is null then return v_done; end if;
  if v_front.lane is null and v_lane.list is not null then  -- it waits for a bucket that is not due
    update sluice.lane l set v = l.v + 1, bound = p_news.bounds[1]
    where l.id = v_lane.id and l.v = v_lane.v and l.bound > p_news.bounds[1]; return v_done;
  end if;
  v_done.served := not v_lane.costed; if v_lane.costed then return v_done; end if;
  perform engine.lock_buckets(v_lane.buckets);
  v_is := engine.read_claim_room(v_lane.buckets, '{}', v_lane.buckets, array[v_lane.id], p_cap);
  v_done.now_us := v_is.now_us; v_done.probing := v_is.probing;
  v_done.served := v_is.stale is null; if not v_done.served then return v_done; end if;
  foreach v_room in array v_is.rooms loop
    if v_room.avail < v_free then v_free := v_room.avail; v_blocked := v_room.ord; end if; end loop;
  v_take := least(p_want, v_free);
  if v_take = p_want then v_blocked := null;
  elsif v_lane.list is not null or v_take < p_news.counts[1] then
    v_ahead := engine.grant_lanes_ahead(array[v_lane], v_lane.buckets, v_is.rooms, p_want, v_is.now_us, p_ahead);
    -- Another bucket has less room, so the lane waits for that one.
    if v_ahead.instants is null and (v_is.rooms[v_ahead.deciding]).avail > v_free then v_ahead := null; end if;
    v_blocked := coalesce(v_ahead.deciding, v_blocked);
    if v_ahead.instants is not null then
      v_take := cardinality(v_ahead.instants);
      foreach v_room in array v_ahead.rooms loop
        v_done.probing := v_done.probing or v_room.probe > 0;  -- as in `engine.decide_claim`
        if v_room.avail < v_take then v_take := v_room.avail; v_blocked := v_room.ord; end if; end loop;
      if v_take <= v_free then v_take := v_free; v_ahead := null; end if; end if; end if;
  v_lane.bound := case when v_lane.list is null then p_news.bounds[1] else least(v_lane.bound, p_news.bounds[1]) end;
  if v_take > 0 then
    v_mark := engine.mark_lane_jobs(p_claim, p_worker, v_is.now_us, v_is.at, v_lane, v_take, v_is.rooms, v_ahead);
    v_done.granted := v_mark.granted; v_done.jobs := v_mark.jobs; v_move := v_mark.moves[1];
    v_done.instants := nullif(v_ahead.instants[:v_mark.granted], '{}');
  end if;
  v_done.soon := current_setting('sluice.met_locked', true) is not distinct from 'yes';  -- `engine.try_lock_job`
  -- Behind jobs that were set aside, or went away meanwhile, there may be others.
  v_done.again := (v_done.granted < p_want and (v_move.more and v_done.granted < v_take
    or not v_done.soon and v_move.seen > v_move.taken)) is true;
  if v_lane.list = 0 and v_blocked is null and v_move.more and v_move.seen = v_move.taken and v_move.taken > 0 then
    -- As in most claims of a backlog, it stays in the ready list, whose due time sleepers read.
    update sluice.lane l set v = l.v + 1, bound = v_move.last + 1, rank = greatest(l.rank, v_move.rank), denied = 0,
      vstart = l.vstart + v_move.taken * (1000000 / greatest(1, l.weight))
    where l.id = v_lane.id and l.v = v_lane.v;
    perform engine.update_ready_list(p_class, v_is.now_us, v_lane.vstart); return v_done;
  end if;
  if v_lane.list is null then  -- it did not wait; when nothing of it is left it stays as it was
    if not v_move.more and v_move.seen = v_move.taken then return v_done; end if;
    p_news.bounds := array[v_lane.bound];
    perform engine.seat_lanes(p_class, v_is.now_us, array[v_lane], p_news);
    select * into v_lane from sluice.lane l where l.id = v_lane.id order by l.v desc limit 1;
  end if;
  v_next := engine.advance_lanes(
    array[v_lane], array[v_lane.vstart], array[1000000 / greatest(1, v_lane.weight)]::bigint[],
    engine.find_denying_buckets(array[v_lane],
      array[case when v_move.more is false then 0 else coalesce(v_blocked, 0) end], v_lane.buckets, v_is.rooms),
    v_lane.buckets, case when v_move.lane is not null then array[v_move] else '{}' end);
  perform engine.update_lists(v_is.now_us, array[v_lane], v_next, v_lane.buckets[v_ahead.deciding], v_ahead.lead);
  return v_done;
end $$;

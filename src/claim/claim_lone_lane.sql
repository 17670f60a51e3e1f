-- Serves a claim whose only active class has one lane with jobs to give, without comparing lanes. It locks
-- buckets, reads limits (`engine.read_claim_room`) and hands out jobs in the same order and way as
-- `engine.decide_claim`. The lane's jobs have no costs. It does not seat a lane that did not wait and whose arrivals
-- can all begin.
-- p_news: what has arrived for the class, which is locked; its jobs need no label and no pool.
-- fits = false: this case needs `engine.decide_claim`, and nothing was changed.
create or replace function engine.claim_lone_lane(
  p_claimer engine.claimer, p_news engine.news) returns engine.claimed language plpgsql as $$
declare
  v_class constant bigint := (p_news.state).class;
  v_lone constant record := engine.find_lone_lane(p_news, p_claimer.begun, p_claimer.since);
  v_lane sluice.lane := v_lone.lane;
  v_claimed engine.claimed;
  v_room engine.claim_room;
  v_jobs record;  -- how many of its jobs are claimed
  v_ahead engine.ahead;
  v_mark engine.marked;
  v_move engine.move;
  v_next sluice.lane[];
  v_locked boolean;  -- nothing reads it: an assignment is cheaper than PERFORM
begin
  v_claimed.now_us := p_claimer.begun; v_claimed.granted := 0; v_claimed.again := false; v_claimed.soon := false;
  v_claimed.fits := not v_lone.unfit;
  if v_lone.unfit or v_lane.id is null then return v_claimed; end if;
  if v_lone.waits then
    update sluice.lane l set v = l.v + 1, bound = p_news.bounds[1]
    where l.id = v_lane.id and l.v = v_lane.v and l.bound > p_news.bounds[1];
    return v_claimed;
  end if;
  v_locked := engine.lock_buckets(v_lane.buckets);
  v_room := engine.read_claim_room(v_lane.buckets, '{}', v_lane.buckets, array[v_lane.id], p_claimer.cap);
  v_claimed.now_us := v_room.now_us; v_claimed.on_trial := v_room.on_trial;
  if v_room.stale is not null then v_claimed.fits := false; return v_claimed; end if;
  v_jobs := engine.count_lone_jobs(p_claimer, v_lane, v_room, p_news.counts[1]);
  v_claimed.on_trial := v_claimed.on_trial or v_jobs.on_trial;
  v_ahead := v_jobs.ahead;
  v_lane.bound := case when v_lane.list is null then p_news.bounds[1] else least(v_lane.bound, p_news.bounds[1]) end;
  if v_jobs.take > 0 then
    v_mark := engine.mark_lane_jobs(p_claimer, v_lane, v_jobs.take, v_room, v_ahead);
    v_claimed.granted := v_mark.granted; v_claimed.jobs := v_mark.jobs; v_move := v_mark.moves[1];
    v_claimed.instants := nullif(v_ahead.instants[:v_mark.granted], '{}');
  end if;
  v_claimed.soon := current_setting('sluice.met_locked', true) is not distinct from 'yes';  -- `engine.try_lock_job`
  -- Behind jobs that were set aside, or went away meanwhile, there may be others.
  v_claimed.again := (v_claimed.granted < p_claimer.want and (v_move.more and v_claimed.granted < v_jobs.take
    or not v_claimed.soon and v_move.seen > v_move.taken)) is true;
  if v_lane.list = 0 and v_jobs.blocked is null and v_move.more and v_move.seen = v_move.taken and v_move.taken > 0 then
    -- As in most claims of a backlog, it stays in the ready list, whose due time sleepers read.
    update sluice.lane l set v = l.v + 1, bound = v_move.last + 1, rank = greatest(l.rank, v_move.rank), denied = 0,
      vstart = l.vstart + v_move.taken * (1000000 / greatest(1, l.weight))
    where l.id = v_lane.id and l.v = v_lane.v;
    perform engine.update_ready_list(v_class, v_room.now_us, v_lane.vstart);
    return v_claimed;
  end if;
  if v_lane.list is null then  -- it did not wait; when nothing of it is left it stays as it was
    if not v_move.more and v_move.seen = v_move.taken then return v_claimed; end if;
    p_news.bounds := array[v_lane.bound];
    perform engine.seat_lanes(v_class, v_room.now_us, array[v_lane], p_news);
    select * into v_lane from sluice.lane l where l.id = v_lane.id order by l.v desc limit 1;
  end if;
  v_next := engine.advance_lanes(
    array[v_lane], array[v_lane.vstart], array[1000000 / greatest(1, v_lane.weight)]::bigint[],
    engine.find_denying_buckets(array[v_lane],
      array[case when v_move.more is false then 0 else coalesce(v_jobs.blocked, 0) end], v_lane.buckets, v_room.rooms),
    v_lane.buckets, case when v_move.lane is not null then array[v_move] else '{}' end);
  perform engine.update_lists(v_room.now_us, array[v_lane], v_next, v_lane.buckets[v_ahead.deciding], v_ahead.early_us);
  -- A sender that saw it blocked notified nobody.
  v_claimed.soon := v_claimed.soon or v_lane.list <> 0 and v_next is not null and v_next[1].list is null;
  return v_claimed;
end $$;

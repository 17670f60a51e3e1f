-- Moves a lane that was alone on after a claim of p_take of its jobs (p_moves: what became of them, in one element; null: of none),
-- as move does for many. p_lane: with what has arrived for it (p_grown: something has). One that did not wait (list null) is
-- seated only if some of it is left after all. One that goes on keeps turn and seat, also before the bucket that it waited for, unless
-- that has room for as much again: it is due there at once, or when there is room again. p_stored: the turn under which it was found;
-- p_blocked: the position of the bucket that denied it, 0: none. True when something is still worth claiming now.
create or replace function engine.onward(
  p_now bigint, p_lane sluice.lane, p_stored bigint, p_grown boolean, p_take integer, p_blocked integer, p_moves engine.move[])
returns boolean language plpgsql as $$
declare
  v_move engine.move := p_moves[1];
  v_seen integer := coalesce(v_move.seen, 0);
  v_gone integer := coalesce(v_move.taken + v_move.late, 0);
  v_left bigint := case when p_take > v_seen and v_seen = v_gone then 0 else greatest(p_lane.n - v_gone, 0) end;
  v_stays boolean := v_left > 0 and coalesce(v_move.head - 60 * p_lane.priority < p_lane.rank + 60, true)
                     and (p_blocked = 0 or p_lane.buckets[p_blocked] = p_lane.list);
  v_lane sluice.lane := p_lane;
  v_room record;  -- of the bucket that it waited for
begin
  -- Where jobs are kept room for, expire in vain or ask for a share, there is more to decide.
  if v_stays and p_lane.list <> 0 then v_stays := not exists (select 1 from sluice.list w where w.id = p_lane.list and w.holder is not null); end if;
  if v_stays and p_lane.list <> 0 then
    select r.bucket, r.avail, r.next, r.period, r.slack into v_room from engine.room(array[p_lane.list], p_now) r;
    -- Who stands there with room in plenty would be taken for one that waits: by takers outside of jobs, who would leave it every
    -- other turn (awaited), and by lanes that begin to wait, which would start from where the ready ones once were (enter).
    v_stays := p_blocked > 0 or v_room.avail < p_take;
  end if;
  if v_stays and p_blocked > 0 then
    v_stays := not exists (select 1 from sluice.job where expires_at is not null) and not exists (select 1 from sluice.limit_def d where d.lend_us is not null);
  end if;
  if p_lane.list is null or v_stays then
    update sluice.lane l set v = l.v + 1, n = v_left, list = case when v_left > 0 then coalesce(p_lane.list, 0) end,
      bound = case when v_seen > 0 and v_seen = v_gone then v_move.last + 1 else p_lane.bound end,
      rank = case when p_lane.list is null then coalesce(v_move.head - 60 * p_lane.priority, l.rank) else l.rank end
    where l.id = p_lane.id and l.v = p_lane.v returning l.* into v_lane;
    if p_lane.list is null and v_left > 0 then perform engine.enter(p_lane.class, array[v_lane]); end if;
    if p_lane.list <> 0 then
      update sluice.list l set v = l.v + 1, period = v_room.period, slack = v_room.slack,
        due = case when p_blocked = 0 then p_now else engine.after(v_room.bucket, v_room.next, p_now) end
      where l.ctid = (select k.ctid from sluice.list k where k.class = p_lane.class and k.id = p_lane.list order by k.v desc limit 1);
    end if;
    return p_take > coalesce(v_move.taken, 0);
  end if;
  if p_grown then
    update sluice.lane l set v = l.v + 1, n = p_lane.n, bound = p_lane.bound where l.id = p_lane.id and l.v = p_lane.v returning l.* into v_lane;
  end if;
  return engine.move(p_now, array[v_lane], array[p_stored], array[p_take], array[p_blocked], p_lane.buckets, array[p_lane.fair], null,
    coalesce(p_moves, '{}'));
end $$;

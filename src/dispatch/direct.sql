-- Serves a claim when only one lane of its only active class has something to give: nobody is compared with it, so turns, seats
-- and lists need no look. A lane that did not wait is not even seated, when all that has arrived for it can begin at once. Jobs without
-- costs only; labels and pools are the caller's to exclude. The order of locks, the arithmetic of limits (survey), and what is
-- handed out are those of grant and mark. p_fresh: what has arrived; p_begun, p_since, p_cap: claim.
-- served: false when it is no such case: then nothing was changed; null: nor then, but the lane's buckets are locked.
create or replace function engine.direct(
  p_claim uuid, p_worker bigint, p_class bigint, p_fresh engine.fresh, p_want integer, p_begun bigint, p_since bigint, p_cap bigint,
  out served boolean, out now_us bigint, out granted integer, out again boolean, out jobs text)
language plpgsql as $$
declare
  v_seat record;
  v_lane sluice.lane;
  v_is record;
  v_free bigint;
  v_life bigint;
  v_take integer;
  v_moves engine.move[];
begin
  served := false;
  granted := 0;
  again := false;
  now_us := p_begun;
  if p_fresh.future or cardinality(p_fresh.lanes) > 1 then return; end if;
  select count(*) as n, min(s.list) as list, min(s.vstart) as vstart, min(s.lane) as lane into v_seat
  from (
    (select id, floor from sluice.list where class = p_class and id = 0 order by v desc limit 1)
    union all
    (select id, floor from sluice.list where class = p_class and due > p_since and due <= p_begun order by due limit 2)
  ) l
  cross join lateral (select r.fair, r.vstart from sluice.turn r where r.class = p_class and r.list = l.id and r.vstart >= l.floor
                      order by r.vstart, r.fair limit 2) t
  cross join lateral (select l.id as list, t.vstart, k.lane from sluice.seat k where k.class = p_class and k.list = l.id and k.fair = t.fair
                      order by k.rank, k.lane limit 2) s;
  if v_seat.n > 1 or v_seat.lane <> p_fresh.lanes[1] then return; end if;
  select * into v_lane from sluice.lane l where l.id = coalesce(v_seat.lane, p_fresh.lanes[1]) order by l.v desc limit 1;
  if v_lane.id is null or v_lane.costed or v_lane.list is distinct from v_seat.list then
    served := v_lane.id is null and p_fresh.lanes is null;
    return;
  end if;
  perform engine.lock(v_lane.buckets);
  select * into v_is from engine.survey(v_lane.buckets, '{}', v_lane.buckets, array[v_lane.id], p_cap);
  now_us := v_is.now_us;
  select min(u.a), min(u.g) into v_free, v_life from unnest(v_is.avail, v_is.life) u (a, g);
  v_lane.n := v_lane.n + coalesce(p_fresh.counts[1], 0);
  v_take := greatest(0, least(p_want, v_lane.n, v_free));
  if v_seat.lane is null and v_take < v_lane.n then
    served := null;
    return;
  end if;
  served := true;
  v_lane.bound := least(v_lane.bound, p_fresh.bounds[1]);
  if v_take > 0 then
    select d.granted, d.jobs, d.moves into granted, jobs, v_moves
    from engine.draw(p_claim, p_worker, now_us, v_lane, v_take, v_life) d;
  end if;
  if granted > 0 then
    perform engine.charge(p_claim, now_us, v_lane.buckets, array_fill(granted::bigint, array[cardinality(v_lane.buckets)]),
      p_rooms => v_is.rooms);
  end if;
  again := engine.onward(now_us, v_lane, v_seat.vstart, p_fresh.lanes is not null, v_take,
    case when v_take < least(p_want, v_lane.n) then array_position(v_is.avail, v_free) else 0 end, v_moves);
end $$;

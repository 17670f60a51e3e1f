-- Decides how many jobs a claim takes of a lane that is alone: as many as the bucket with the least room allows now, or
-- as many as it allows by the last instant ahead, if those are more.
-- p_arrived: how many jobs have arrived for it
-- take: how many jobs the claim takes
-- blocked: the position of the bucket that allows no more; null: no bucket denied it
-- ahead: null: nothing is granted ahead, so lists are due when their buckets have room
-- on_trial: a bucket that cannot try its vendor now (`engine.refuse_buckets`) can do so at one of the instants of ahead
create or replace function engine.count_lone_jobs(
  p_claimer engine.claimer, p_lane sluice.lane, p_room engine.claim_room, p_arrived bigint,
  out take integer, out blocked integer, out ahead engine.ahead, out on_trial boolean)
language plpgsql as $$
declare
  v_room engine.room;
  v_free bigint := 2147483647;
begin
  on_trial := false;
  foreach v_room in array p_room.rooms loop
    if v_room.avail < v_free then v_free := v_room.avail; blocked := v_room.ord; end if;
  end loop;
  take := least(p_claimer.want, v_free);
  if take = p_claimer.want then
    blocked := null;
    return;
  end if;
  -- A lane that did not wait, and whose arrivals can all begin, is not seated.
  if p_lane.list is null and take >= p_arrived then return; end if;
  ahead := engine.grant_lanes_ahead(p_claimer, p_room, array[p_lane]);
  -- Another bucket has less room, so the lane waits for that one.
  if ahead.instants is null and (p_room.rooms[ahead.deciding]).avail > v_free then ahead := null; end if;
  blocked := coalesce(ahead.deciding, blocked);
  if ahead.instants is null then return; end if;
  take := cardinality(ahead.instants);
  foreach v_room in array ahead.rooms loop
    on_trial := on_trial or v_room.trial_us > 0;  -- as in `engine.decide_claim`
    if v_room.avail < take then take := v_room.avail; blocked := v_room.ord; end if;
  end loop;
  if take <= v_free then
    take := v_free;
    ahead := null;
  end if;
end $$;

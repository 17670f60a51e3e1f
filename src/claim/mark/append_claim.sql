-- Appends to the ledger what a claim was granted. If that was ahead of time, the bucket that decides the instants
-- (`engine.grant_ahead`) and the others are charged at the last of them.
-- p_now: the limiter's clock, in microseconds
-- p_buckets, p_rooms: the buckets of the lanes, and their room when the claim was decided
-- p_ahead: as `engine.grant_lanes_ahead` returned it
-- p_lanes: the lanes
-- p_of: the lane of each job
-- p_units, p_places: as in `engine.append_ledger`
-- Returns true, so that a claim can call it in an assignment, which starts no query.
create or replace function engine.append_claim(
  p_claim uuid, p_now bigint, p_buckets bigint[], p_rooms engine.room[], p_ahead engine.ahead, p_lanes sluice.lane[],
  p_of bigint[], p_units bigint[], p_places bigint[]) returns boolean
language plpgsql as $$
declare
  v_instants bigint[] := p_ahead.instants[:cardinality(p_of)];
  v_shared engine.room;
  v_ords integer[];
begin
  if v_instants is not null then
    if cardinality(v_instants) = cardinality(p_ahead.instants) then
      p_rooms := p_ahead.rooms;
    else  -- fewer jobs were left
      v_shared := (engine.grant_ahead(p_rooms[p_ahead.shared], cardinality(v_instants), p_now)).room;
      p_rooms := engine.bucket_room(p_buckets, v_shared.now_at);
      p_rooms[p_ahead.shared] := v_shared;
    end if;
    if cardinality(p_lanes) > 1 then  -- each has buckets of its own
      select array_agg(u.at order by u.o), array_agg(array_position(p_buckets, b) order by u.o) into v_instants, v_ords
      from unnest(p_of, v_instants) with ordinality u (lane, at, o)
      join unnest(p_lanes) l on l.id = u.lane cross join unnest(l.buckets) b;
    end if;
  end if;
  if cardinality(p_lanes) > 1 then p_rooms := array(select r from unnest(p_rooms) r where p_places[r.ord] > 0); end if;
  perform engine.append_ledger(p_rooms, p_claim, p_units, p_places, p_instants => v_instants, p_ords => v_ords);
  return true;
end $$;

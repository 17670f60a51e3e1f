-- Appends to the ledger what a claim of several lanes was granted. If that was ahead of time
-- (`engine.grant_lanes_ahead`), the bucket that all jobs use is as `engine.grant_ahead` computes it, and their other
-- buckets are charged at the last instant.
-- p_now: the limiter's clock, in microseconds
-- p_buckets, p_rooms: the buckets of the lanes, and their room when the claim was decided
-- p_shared: the position of the bucket that all jobs use
-- p_instants: when each of the jobs may begin, and maybe more; null: at p_now
-- p_of: the lane of each job
-- p_lane: the lanes
-- p_units, p_places: as in `engine.append_ledger`
create or replace function engine.append_claim(
  p_claim uuid, p_now bigint, p_buckets bigint[], p_rooms engine.room[], p_shared integer, p_instants bigint[],
  p_of bigint[], p_lane sluice.lane[], p_units bigint[], p_places bigint[]) returns void
language plpgsql as $$
declare
  v_shared engine.room;
  v_instants bigint[];
  v_ords integer[];
begin
  if p_instants is not null then
    v_shared := (engine.grant_ahead(p_rooms[p_shared], cardinality(p_of), p_now)).room;
    p_rooms := engine.bucket_room(p_buckets, v_shared.now_at);
    p_rooms[p_shared] := v_shared;
    select array_agg(u.at order by u.o), array_agg(array_position(p_buckets, b) order by u.o) into v_instants, v_ords
    from unnest(p_of, p_instants[:cardinality(p_of)]) with ordinality u (lane, at, o)
    join unnest(p_lane) l on l.id = u.lane cross join unnest(l.buckets) b;
  end if;
  perform engine.append_ledger(array(select r from unnest(p_rooms) r where p_places[r.ord] > 0), p_claim, p_units,
    p_places, p_instants => v_instants, p_ords => v_ords);
end $$;

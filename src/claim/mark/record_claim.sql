-- Records a claim: its row, and in the ledger what its jobs were granted. If that was ahead of time, the bucket that
-- decides the instants (`engine.grant_ahead`) and the others are charged at the last of them.
-- If a job went away meanwhile, the text of the jobs may lack the fields that the jobs of its lane have in common, and
-- the next job gets its instant. So this function writes all instants again, and returns true: the worker has to read
-- the jobs by `engine.adopt_claim`.
-- p_ahead: maybe for more jobs than were marked
create or replace function engine.record_claim(
  p_claimer engine.claimer, p_lanes sluice.lane[], p_room engine.claim_room, p_ahead engine.ahead,
  p_marked engine.marked) returns boolean
language plpgsql as $$
declare
  v_rooms engine.room[] := p_room.rooms;
  v_instants constant bigint[] := p_ahead.instants[:p_marked.granted];
  v_decider engine.room;
  v_ats bigint[] := v_instants;  -- the instants of each bucket's units
  v_ords integer[];
begin
  insert into sluice.claim (id, worker, at, lanes, seqs, instants)
  values (p_claimer.claim, p_claimer.worker, p_room.now_us, p_marked.lanes, p_marked.seqs, v_instants);
  if v_instants is not null then
    if cardinality(v_instants) = cardinality(p_ahead.instants) then
      v_rooms := p_ahead.rooms;
    else  -- fewer jobs were left
      v_decider := (engine.grant_ahead(v_rooms[p_ahead.deciding], cardinality(v_instants), p_room.now_us)).room;
      v_rooms := engine.recorded_room(p_room.buckets, v_decider.now_at);
      v_rooms[p_ahead.deciding] := v_decider;
    end if;
    if cardinality(p_lanes) > 1 then  -- each has buckets of its own
      select array_agg(u.at order by u.o), array_agg(array_position(p_room.buckets, b) order by u.o)
      into v_ats, v_ords from unnest(p_marked.lanes, v_instants) with ordinality u (lane, at, o)
      join unnest(p_lanes) l on l.id = u.lane cross join unnest(l.buckets) b;
    end if;
  end if;
  if 0 = any (p_marked.places) then
    v_rooms := array(select r from unnest(v_rooms) r where p_marked.places[r.ord] > 0); end if;
  perform engine.append_ledger(
    v_rooms, p_claimer.claim, p_marked.units, p_marked.places, p_instants => v_ats, p_ords => v_ords);
  if p_marked.fewer and v_instants is not null then
    update sluice.job j set dispatched_at = p_room.at + make_interval(secs => (u.at - p_room.now_us) / 1e6)
    from unnest(p_marked.lanes, p_marked.seqs, v_instants) u (lane, seq, at) where j.lane = u.lane and j.seq = u.seq;
  end if;
  return p_marked.fewer;
end $$;

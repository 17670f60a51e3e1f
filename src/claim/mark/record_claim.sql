-- Records a claim: its row, and in the ledger what its jobs were granted. If that was ahead of time, the bucket that
-- decides the instants (`engine.grant_ahead`) and the others are charged at the last of them.
-- If a job went away meanwhile, the text of the jobs may lack the fields that the jobs of its lane have in common, and
-- the next job gets its instant. So this function writes all instants again, and returns true: the worker has to read
-- the jobs by `engine.adopt_claim`.
-- p_of, p_seqs: the lane and the seq of each job that was marked
-- p_fewer: a job went away
-- p_ahead: maybe for more jobs
-- p_units, p_places: as in `engine.append_ledger`
create or replace function engine.record_claim(
  p_claim uuid, p_worker bigint, p_now bigint, p_at timestamptz, p_of bigint[], p_seqs bigint[], p_fewer boolean,
  p_lanes sluice.lane[], p_buckets bigint[], p_rooms engine.room[], p_ahead engine.ahead, p_units bigint[],
  p_places bigint[]) returns boolean
language plpgsql as $$
declare
  v_instants constant bigint[] := p_ahead.instants[:cardinality(p_of)];
  v_decider engine.room;
  v_ats bigint[] := v_instants;  -- the instants of each bucket's units
  v_ords integer[];
begin
  insert into sluice.claim (id, worker, at, lanes, seqs, instants)
  values (p_claim, p_worker, p_now, p_of, p_seqs, v_instants);
  if v_instants is not null then
    if cardinality(v_instants) = cardinality(p_ahead.instants) then
      p_rooms := p_ahead.rooms;
    else  -- fewer jobs were left
      v_decider := (engine.grant_ahead(p_rooms[p_ahead.deciding], cardinality(v_instants), p_now)).room;
      p_rooms := engine.recorded_room(p_buckets, v_decider.now_at);
      p_rooms[p_ahead.deciding] := v_decider;
    end if;
    if cardinality(p_lanes) > 1 then  -- each has buckets of its own
      select array_agg(u.at order by u.o), array_agg(array_position(p_buckets, b) order by u.o) into v_ats, v_ords
      from unnest(p_of, v_instants) with ordinality u (lane, at, o)
      join unnest(p_lanes) l on l.id = u.lane cross join unnest(l.buckets) b;
    end if;
  end if;
  if 0 = any (p_places) then p_rooms := array(select r from unnest(p_rooms) r where p_places[r.ord] > 0); end if;
  perform engine.append_ledger(p_rooms, p_claim, p_units, p_places, p_instants => v_ats, p_ords => v_ords);
  if p_fewer and v_instants is not null then
    update sluice.job j set dispatched_at = p_at + make_interval(secs => (u.at - p_now) / 1e6)
    from unnest(p_of, p_seqs, v_instants) u (lane, seq, at) where j.lane = u.lane and j.seq = u.seq;
  end if;
  return p_fewer;
end $$;

-- Returns when the unfinished jobs of a claim may begin, in the order of `engine.adopt_claim`, if they were granted
-- ahead of time (`engine.grant_ahead`); null: all may begin since the claim.
create or replace function engine.read_instants(p_claim uuid) returns bigint[] language plpgsql stable as $$
begin
  return (
    select array_agg(h.at order by h.o)
    from sluice.claim c cross join unnest(c.lanes, c.seqs, c.instants) with ordinality h (lane, seq, at, o)
    join sluice.job j on j.lane = h.lane and j.seq = h.seq and j.due_at is null and j.claim = c.id
    where c.id = p_claim and c.instants is not null);
end $$;

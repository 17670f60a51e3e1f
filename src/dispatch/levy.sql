-- Charges the jobs of a claim in what they hold, where only dispatch knew that (picks). Call under lock of all of it.
create or replace function engine.levy(p_claim uuid, p_now bigint, p_lanes bigint[], p_seqs bigint[]) returns void language plpgsql as $$
begin
  perform engine.charge(p_claim, p_now, array_agg(b.id), array_agg(b.units), array_agg(b.places)) from (
    select sluice.hash64(h.name) as id, sum(coalesce(j.costs[h.o], 1))::bigint as units, count(*)::integer as places
    from unnest(p_lanes, p_seqs) c (lane, seq)
    join sluice.job j on j.lane = c.lane and j.seq = c.seq and j.due_at is null and j.claim = p_claim
    cross join lateral unnest(coalesce(j.holds, j.takes)) with ordinality h (name, o) group by 1) b;
end $$;

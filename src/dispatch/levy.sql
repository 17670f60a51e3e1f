-- Charges the jobs of a claim in what they hold, where only dispatch knew that (picks). Call under lock of all of it.
create or replace function engine.levy(p_claim uuid, p_now bigint, p_lanes bigint[], p_seqs bigint[]) returns void
language plpgsql as $$
declare
  v_buckets bigint[];
  v_units bigint[];
  v_places bigint[];
begin
  select array_agg(b.id), array_agg(b.units), array_agg(b.places) into v_buckets, v_units, v_places from (
    select sluice.hash64(h.name) as id, sum(coalesce(j.costs[h.o], 1))::bigint as units, count(*) as places
    from unnest(p_lanes, p_seqs) c (lane, seq)
    join sluice.job j on j.lane = c.lane and j.seq = c.seq and j.due_at is null and j.claim = p_claim
    cross join lateral unnest(coalesce(j.holds, j.takes)) with ordinality h (name, o) group by 1) b;
  perform engine.append_ledger(
    array(select r::engine.room from engine.room(v_buckets, p_now) r), p_claim, v_units, v_places);
end $$;

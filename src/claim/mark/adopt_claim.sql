-- Returns the unfinished jobs of a claim, to be handed out again. It never inserts a claim, so a claim whose last job
-- ends meanwhile returns nothing.
-- jobs: without their inputs; null: none.
-- instants: when each of them may begin, if they were granted ahead of time (`engine.grant_ahead`); null: all may begin
-- since the claim.
create or replace function engine.adopt_claim(p_claim uuid, out jobs text, out instants bigint[])
language plpgsql stable set enable_seqscan = off set jit = off as $$
begin
  select '[[' || string_agg(engine.encode_job(j, engine.least_life(array(
             select sluice.hash64(t) from unnest(coalesce(j.charged_buckets, j.buckets)) t)), false, null),
           '],[' order by h.o) || ']]',
         array_agg(h.at order by h.o) filter (where c.instants is not null)
  into jobs, instants
  from sluice.claim c cross join unnest(c.lanes, c.seqs, c.instants) with ordinality h (lane, seq, at, o)
  join sluice.job j on j.lane = h.lane and j.seq = h.seq and j.due_at is null and j.claim = c.id
  where c.id = p_claim;
end $$;

-- Returns the unfinished jobs of a claim without their inputs, to be handed out again; null: none. It never inserts a
-- claim, so a claim whose last job ends meanwhile returns nothing.
create or replace function engine.adopt_claim(p_claim uuid) returns text language plpgsql stable
  set enable_seqscan = off set jit = off as $$
begin
  return (
    select '[[' || string_agg(engine.encode_job(j, engine.least_life(array(
      select sluice.hash64(t) from unnest(coalesce(j.holds, j.takes)) t)), false, null), '],[' order by h.o) || ']]'
    from sluice.claim c cross join unnest(c.lanes, c.seqs) with ordinality h (lane, seq, o)
    join sluice.job j on j.lane = h.lane and j.seq = h.seq and j.due_at is null and j.claim = c.id
    where c.id = p_claim);
end $$;

-- Records what the handlers of running attempts have reported so far. Leaves out jobs that their claim no longer has,
-- and jobs that another transaction has locked, so that it waits for nothing.
-- p_ids, p_claims: the jobs, and the claims that handed them out
-- p_notes: the notes of each, as JSON (worker/notes.ts)
create or replace function engine.record_notes(p_ids uuid[], p_claims uuid[], p_notes text[]) returns void
language plpgsql set enable_seqscan = off set jit = off as $$
begin
  with free as materialized (
    select j.id, u.notes from unnest(p_ids, p_claims, p_notes) u (id, claim, notes)
    join sluice.job j on j.id = u.id and j.claim = u.claim
    for update of j skip locked
  )
  update sluice.job j set notes = f.notes::json from free f where j.id = f.id;
end $$;

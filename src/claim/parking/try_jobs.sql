-- Claims these jobs of a lane as if there were no others, to see whether that fails; the caller rolls it back
-- (`engine.rehearse_claim`). The jobs form a new lane of their own, so the claim fails by them, not by the row of their
-- lane.
-- p_rehearsal: as in `engine.find_faults`
-- p_seqs: the jobs
create or replace function engine.try_jobs(p_rehearsal engine.rehearsal, p_seqs bigint[]) returns void
language plpgsql as $$
declare
  v_own constant bigint := -1;
begin
  update sluice.job j set lane = v_own where j.lane = p_rehearsal.lane and j.seq = any (p_seqs) and j.due_at is null;
  p_rehearsal.news := null;
  p_rehearsal.news.lanes := array[v_own];
  p_rehearsal.news.bounds := array[p_seqs[1]];
  p_rehearsal.news.counts := array[cardinality(p_seqs)];
  perform engine.try_lanes(p_rehearsal, array[v_own]);
end $$;

-- Claims these jobs of a lane as if there were no others, to see whether that fails; the caller rolls it back
-- (`engine.probe_claim`). The jobs form a new lane of their own, so the claim fails by them, not by the row of their
-- lane.
-- p_trial: as in `engine.find_faults`
-- p_seqs: the jobs
create or replace function engine.try_jobs(p_trial engine.trial, p_seqs bigint[]) returns void language plpgsql as $$
declare
  v_own constant bigint := -1;
begin
  update sluice.job j set lane = v_own where j.lane = p_trial.lane and j.seq = any (p_seqs) and j.due_at is null;
  p_trial.news := null;
  p_trial.news.lanes := array[v_own];
  p_trial.news.bounds := array[p_seqs[1]];
  p_trial.news.counts := array[cardinality(p_seqs)];
  perform engine.try_lanes(p_trial, array[v_own]);
end $$;

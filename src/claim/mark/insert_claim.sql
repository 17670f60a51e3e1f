-- Records a claim. If a job went away meanwhile, the text may lack the fields that the jobs of its lane have in common,
-- and the next job gets its instant. So it writes all instants again, and returns '' in place of the text: the worker
-- reads the jobs by `engine.adopt_claim`. Otherwise it returns null.
-- p_fewer: a job went away
-- p_now, p_at: the limiter's clock, in microseconds, and what the store's clock shows then
-- p_lanes, p_seqs: of each job that was marked
-- p_instants: when each of them may begin, in order, and maybe more; null: at p_now
create or replace function engine.insert_claim(
  p_claim uuid, p_worker bigint, p_now bigint, p_at timestamptz, p_lanes bigint[], p_seqs bigint[],
  p_instants bigint[], p_fewer boolean) returns text language plpgsql as $$
begin
  p_instants := p_instants[:cardinality(p_lanes)];
  insert into sluice.claim (id, worker, at, lanes, seqs, instants)
  values (p_claim, p_worker, p_now, p_lanes, p_seqs, p_instants);
  if not p_fewer then return null; end if;
  if p_instants is not null then
    update sluice.job j set dispatched_at = p_at + make_interval(secs => (u.at - p_now) / 1e6)
    from unnest(p_lanes, p_seqs, p_instants) u (lane, seq, at) where j.lane = u.lane and j.seq = u.seq;
  end if;
  return '';
end $$;

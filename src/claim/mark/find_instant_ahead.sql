-- Returns when a job may begin, in the limiter's time, if a worker has it, it was granted ahead of time and its instant
-- is still to come; null: otherwise.
create or replace function engine.find_instant_ahead(p_job sluice.job) returns bigint language plpgsql stable as $$
begin
  return (
    select h.at from sluice.claim c cross join unnest(c.lanes, c.seqs, c.instants) h (lane, seq, at)
    where c.id = p_job.claim and c.instants is not null and h.lane = p_job.lane and h.seq = p_job.seq
      and h.at > engine.limiter_now_us());
end $$;

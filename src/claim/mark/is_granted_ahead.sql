-- Returns whether a worker has a job that was granted ahead of time (`engine.grant_ahead`) and whose instant is still
-- to come.
create or replace function engine.is_granted_ahead(p_job sluice.job) returns boolean language plpgsql stable as $$
begin
  return exists (
    select 1 from sluice.claim c cross join unnest(c.lanes, c.seqs, c.instants) h (lane, seq, at)
    where c.id = p_job.claim and c.instants is not null and h.lane = p_job.lane and h.seq = p_job.seq
      and h.at > engine.limiter_now_us());
end $$;

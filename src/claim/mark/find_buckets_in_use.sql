-- Returns the buckets of all running jobs.
create or replace function engine.find_buckets_in_use() returns setof bigint
language plpgsql stable set enable_seqscan = off set jit = off as $$
begin
  return query
  select distinct sluice.hash64(t.name) from (
    select distinct u.name from sluice.claim c cross join unnest(c.lanes, c.seqs) h (lane, seq)
    join sluice.job j on j.lane = h.lane and j.seq = h.seq and j.due_at is null and j.claim = c.id
    cross join unnest(coalesce(j.charged_buckets, j.buckets)) u (name)) t;
end $$;

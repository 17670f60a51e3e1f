-- Counts the jobs and the takes that hold a place in each bucket of the limit p_name. A bucket in which none does has
-- no row. The caller keeps attempts from ending meanwhile, by the lock of claim/finish/lock_definitions.sql.
create or replace function engine.count_used_places(p_name text)
returns table (bucket bigint, running bigint) language plpgsql stable as $$
begin
  return query
  select u.id, count(*) from (
    select sluice.hash64(t) as id
    from sluice.claim c cross join unnest(c.lanes, c.seqs) h (lane, seq)
    join sluice.job j on j.lane = h.lane and j.seq = h.seq and j.due_at is null and j.claim = c.id
    cross join lateral (select distinct t from unnest(coalesce(j.holds, j.takes)) t) t
    where split_part(t, ':', 1) = p_name
    union all
    select l.bucket from sluice.lease l join sluice.bucket b on b.id = l.bucket where b.name = p_name) u group by 1;
end $$;

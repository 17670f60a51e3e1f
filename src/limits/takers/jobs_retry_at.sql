-- Returns when claims next look at a bucket whose next room is at p_next: at that time, but not within 20 ms while
-- takers reserve units of the bucket, or of a member of the pool that it stands for: the room may be for those takers.
-- Without the 20 ms, claims would repeat at once and find no room each time.
-- p_bucket: the bucket's id.
-- p_next, p_now: limiter's time in microseconds.
create or replace function engine.jobs_retry_at(p_bucket bigint, p_next bigint, p_now bigint) returns bigint
language plpgsql stable as $$
begin
  if p_next > p_now + 20000 or not exists (select 1 from sluice.taker where alive_until > p_now) then
    return p_next;
  end if;
  return case when exists (
    select 1 from sluice.taker t where t.alive_until > p_now and t.reserves and t.bucket in (
      select p_bucket union all
      select sluice.hash64(b.name || ':' || m) from sluice.bucket b cross join lateral (
        select members from sluice.limit_def where name = b.name order by version desc limit 1) d, unnest(d.members) m
      where b.id = p_bucket and b.key = '*')) then p_now + 20000 else p_next end;
end $$;

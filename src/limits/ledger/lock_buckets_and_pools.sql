-- Locks buckets (engine.lock_buckets) for a transaction that may give units or places back to them. For members of a
-- pool it locks the pool's own bucket too, because the jobs that wait for any member stand in the pool's list.
-- p_buckets: their ids.
create or replace function engine.lock_buckets_and_pools(p_buckets bigint[]) returns void language plpgsql as $$
begin
  if exists (select 1 from sluice.limit_def d where d.members is not null) then
    p_buckets := p_buckets || array(
      select distinct sluice.hash64(b.name || '*') from sluice.bucket b
      join sluice.limit_def d on d.name = b.name and d.members is not null where b.id = any (p_buckets));
  end if;
  perform engine.lock_buckets(p_buckets);
end $$;

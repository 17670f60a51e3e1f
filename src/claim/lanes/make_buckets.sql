-- Inserts rows for those of these buckets that have none yet. Its shared lock keeps `engine.retire_buckets` from
-- deleting one of them until the transaction ends.
-- p_buckets: the names of the buckets, as in sluice.job.buckets
create or replace function engine.make_buckets(p_buckets text[]) returns void language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(1397511523, -8);  -- lock: new lanes
  insert into sluice.bucket (id, name, key)
  select sluice.hash64(t) as id, n.name, case when t = n.name || '*' then '*' else substr(t, length(n.name) + 2) end
  from unnest(p_buckets) t cross join lateral (select substring(t from '^[^:*]+') as name) n
  order by id on conflict do nothing;
end $$;

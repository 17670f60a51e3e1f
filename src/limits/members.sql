-- The buckets in which what is charged to a bucket stands: of a pool its members, else the bucket itself.
create or replace function engine.members(p_bucket bigint) returns bigint[] language plpgsql stable as $$
begin
  return coalesce((
    select array(select sluice.hash64(b.name || ':' || m) from unnest(d.members) m) from sluice.bucket b
    cross join lateral (select members from sluice.limit_def where name = b.name order by version desc limit 1) d
    where b.id = p_bucket and b.key = '*' and d.members is not null), array[p_bucket]);
end $$;

-- Returns the greatest cost in a limit, among 10,000 waiting jobs that have costs. $1: the limit's name; $2: one of
-- its buckets; null: all but those that have numbers of their own
select max(w.costs[t.i])::float8 as cost
from (select j.buckets, j.costs from sluice.job j where j.claim is null and j.costs is not null limit 10000) w
cross join unnest(w.buckets) with ordinality t (bucket, i)
where substring(t.bucket from '^[^:@*]*') = $1
  and case when $2::text is null then not exists (
        select 1 from sluice.bucket b where b.id = sluice.hash64(t.bucket) and b.def_key <> '')
      else t.bucket = $2 end

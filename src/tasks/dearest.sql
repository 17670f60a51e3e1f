-- The greatest cost in a limit that a waiting job has, of 10,000 that have costs. $1 the limit's name.
select max(w.costs[t.i])::float8 as cost
from (select j.takes, j.costs from sluice.job j where j.claim is null and j.costs is not null limit 10000) w
cross join unnest(w.takes) with ordinality t (bucket, i)
where substring(t.bucket from '^[^:@*]*') = $1

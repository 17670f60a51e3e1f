-- The greatest cost in a limit that a waiting job has, of 10,000 of them. $1 the limit's name. Through JSON, since costs
-- are in a column that few jobs have anything in.
select max((w.costs ->> (t.i - 1)::integer)::bigint)::float8 as cost
from (select j.takes, to_jsonb(j) -> 'costs' as costs from sluice.job j where j.claim is null and j.takes is not null limit 10000) w
cross join unnest(w.takes) with ordinality t (bucket, i)
where jsonb_typeof(w.costs) = 'array' and substring(t.bucket from '^[a-z0-9._-]+') = $1

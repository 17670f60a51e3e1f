-- Counts waiting jobs by task, queue and buckets.
-- $1: how many jobs at most
-- $2: how much of the table to read, in percent: pages from everywhere, because jobs sent together lie together
select s.task, s.queue, s.buckets, count(*)::integer as n, bool_or(s.costs is not null) as has_costs,
       engine.unix_ms(min(s.at)) as oldest_ms
from (select j.task, j.queue, j.buckets, j.costs, coalesce(j.since, j.created_at) as at
      from sluice.job j tablesample system ($2::float8)
      where j.claim is null and (j.due_at = 'infinity') is not false limit $1::integer) s
group by s.task, s.queue, s.buckets

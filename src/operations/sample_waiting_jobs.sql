-- Counts waiting jobs by task, queue and buckets, ten thousand at most. With more, only their proportions matter.
-- $1: how many jobs at most
select s.task, s.queue, s.buckets, count(*)::integer as n, bool_or(s.costs is not null) as has_costs,
       engine.unix_ms(min(s.at)) as oldest_ms
from (select j.task, j.queue, j.buckets, j.costs, coalesce(j.since, j.created_at) as at from sluice.job j
      where j.claim is null and (j.due_at = 'infinity') is not false limit $1::integer) s
group by s.task, s.queue, s.buckets

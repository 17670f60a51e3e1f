-- Returns the tasks whose attempts fail: how many jobs wait for another attempt after a failure, how many have failed
-- for good within the last hour, and the newest error. It reads 10,000 jobs of each kind at most: those that are due
-- first, and those that were sent last.
with ended as materialized (
  select task, error, reason, finished_at as at from sluice.failed order by id desc limit 10000
), tried as (
  (select task, error, null as reason, dispatched_at as at, true as again from sluice.job
   where due_at < 'infinity' and held is null and attempt > 0 order by due_at limit 10000)
  union all
  select task, error, reason, at, false from ended where at > sluice.now() - interval '1 hour'
)
select task, (count(*) filter (where again))::integer as retrying,
       (count(*) filter (where not again))::integer as failed,
       engine.unix_ms(max(at)) as last_ms,
       (array_agg(coalesce(error ->> 'message', reason, '') order by at desc nulls last))[1] as error
from tried group by task order by count(*) desc, task limit 20

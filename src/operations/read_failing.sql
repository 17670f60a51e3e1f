-- Returns the tasks whose attempts fail: how many jobs wait for another attempt after a failure, how many have failed
-- for good within the last hour, and the newest error. It looks at 10,000 jobs of each kind at most: the scheduled ones
-- that are due first, and the failed ones that were sent last.
-- Sorting is off, because a table that was not analyzed yet would be read and sorted as a whole.
create or replace function engine.read_failing()
returns table (task text, retrying integer, failed integer, last_ms float8, error text)
language sql stable set jit = off set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off as $$
  with ended as materialized (
    select task, error, reason, finished_at as at from sluice.failed order by id desc limit 10000
  ), due as materialized (
    -- Jobs that a sender has delayed count as looked at, too: otherwise a million of them would be read to find none.
    select task, error, dispatched_at, delay_reason, attempt from sluice.job
    where due_at < 'infinity' order by due_at limit 10000
  ), tried as (
    select task, error, null as reason, dispatched_at as at, true as again from due
    where delay_reason is null and attempt > 0
    union all
    select task, error, reason, at, false from ended where at > sluice.now() - interval '1 hour'
  )
  select task, (count(*) filter (where again))::integer as retrying,
         (count(*) filter (where not again))::integer as failed,
         engine.unix_ms(max(at)) as last_ms,
         (array_agg(coalesce(error ->> 'message', reason, '') order by at desc nulls last))[1] as error
  from tried group by task order by count(*) desc, task limit 20
$$;

-- Counts the deliveries of events that wait for another attempt, for each handler by the number of its failures.
-- p_most: how many of the jobs that are due first it reads.
create or replace function engine.count_event_retries(p_most integer)
returns table (service text, handler text, failed integer, n bigint)
language sql stable set enable_seqscan = off as $$
  select j.input ->> 'service', j.input ->> 'handler', j.failed, count(*)
  from (select * from sluice.job where due_at is not null order by due_at limit p_most) j
  where j.task like 'events:%' and j.failed > 0
  group by 1, 2, 3
$$;

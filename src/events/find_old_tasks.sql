-- Returns the tasks that handlers had before, whose deliveries may still wait. $1: the service. $2: the handlers.
select distinct t.task from sluice.subscription s cross join lateral unnest(s.old_tasks) t (task)
where s.service = $1 and s.handler = any ($2)
order by 1

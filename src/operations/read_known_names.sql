-- Lists the names of tasks, queues or limits: those in the code of workers, and those in which jobs wait or have
-- waited.
-- $1: `task`, `queue` or `limit`
select distinct x.name from (
  select k.name from sluice.task k where $1 = 'task'
  union all select k.queue from sluice.task k where $1 = 'queue'
  union all select unnest(w.queues) from sluice.worker w where $1 = 'queue'
  union all select unnest(w.tasks) from sluice.worker w where $1 = 'task'
  union all select case $1 when 'task' then c.task else c.queue end from sluice.class c where $1 in ('task', 'queue')
  union all select split_part(d.name, '/', 1) from sluice.limit_def d where $1 = 'limit'
  -- Jobs that no claim has seen yet, and the newest ones that have ended.
  union all (select case $1 when 'task' then j.task else j.queue end from sluice.job j
             where $1 in ('task', 'queue') order by j.id desc limit 1000)
  union all (select case $1 when 'task' then h.task else h.queue end from sluice.done h
             where $1 in ('task', 'queue') order by h.id desc limit 1000)
  union all (select case $1 when 'task' then h.task else h.queue end from sluice.failed h
             where $1 in ('task', 'queue') order by h.id desc limit 1000)) x
where x.name is not null order by x.name limit 10000

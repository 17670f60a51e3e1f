-- Records the tasks of which a worker has the code, for senders that use SQL.
-- $1: names
-- $2: the queue of each task's jobs, unless the sender names one
-- $3: the task's jobs run only once: they are not tried again in doubt
-- $4: the task that gets a job for each failure
-- $5: the present name of a task that had this one before; null: it is the task's name
-- $6: Celery workers execute the task
insert into sluice.task as t (name, queue, once, on_failed, currently, remote, seen_at)
select u.name, u.queue, nullif(u.once, false), u.on_failed, u.currently, nullif(u.remote, false), n.now
from unnest($1::text[], $2::text[], $3::boolean[], $4::text[], $5::text[], $6::boolean[])
  u (name, queue, once, on_failed, currently, remote)
cross join (select sluice.now() as now) n order by u.name
on conflict (name) do update set
  queue = excluded.queue, once = excluded.once, on_failed = excluded.on_failed, currently = excluded.currently,
  remote = excluded.remote, seen_at = excluded.seen_at
where (t.queue, t.once, t.on_failed, t.currently, t.remote)
    is distinct from (excluded.queue, excluded.once, excluded.on_failed, excluded.currently, excluded.remote)
  or t.seen_at < excluded.seen_at - interval '1 day'

-- Lists the tasks that workers have recorded, that live workers have, or of which jobs wait, and who serves each.
select n.name, t.queue, t.currently, t.remote, (extract(epoch from t.seen_at) * 1000)::float8 as seen_ms,
       (select json_agg(json_build_object('who', w.host || ':' || w.pid, 'version', w.version, 'queues', w.queues)
                        order by w.id)
        from sluice.worker w where n.name = any (w.tasks)) as workers,
       exists (select 1 from sluice.class c
               where c.task = n.name and (
                 -- A lane stays listed, and an arrival is kept, after its jobs were cancelled.
                 exists (select 1 from sluice.lane l where l.class = c.id and l.list is not null
                         and exists (select 1 from sluice.job j
                                     where j.lane = l.id and j.due_at is null and j.claim is null))
                 or exists (select 1 from sluice.arrival a where a.class = c.id
                            and exists (select 1 from sluice.job j
                                        where j.lane = a.lane and j.due_at is null and j.claim is null))))
         or n.is_sent as waits
from (
  select x.name, bool_or(x.is_sent) as is_sent from (
    select k.name, false as is_sent from sluice.task k
    union all select unnest(w.tasks), false from sluice.worker w
    union all select c.task, false from sluice.class c where c.retired is null
    -- Jobs that no claim has seen yet.
    union all (select j.task, j.claim is null from sluice.job j order by j.id desc limit 1000)) x
  group by x.name) n
left join sluice.task t on t.name = n.name
order by n.name limit 10000

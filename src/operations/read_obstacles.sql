-- Reads, for tasks in queues, what keeps their jobs from workers: closed gates, and how many workers know the task,
-- serve the queue, do both, and have the labels, too.
-- $1, $2: tasks and queues
-- $3: the labels that limits of their jobs go by, each as a text with commas; '': none
select u.o::integer as i,
       (select json_agg(json_build_object('gate', g.gate, 'reason', g.reason, 'by', g.by,
          'sinceMs', (extract(epoch from g.since) * 1000)::float8,
          'untilMs', (extract(epoch from g.until) * 1000)::float8))
        from engine.find_closed_gates(u.queue, u.task, sluice.now()) g) as gates,
       w.knowing::integer, w.serving::integer, w.both::integer, w.able::integer, w.live::integer,
       t.currently, (extract(epoch from t.seen_at) * 1000)::float8 as seen_ms
from unnest($1::text[], $2::text[], $3::text[]) with ordinality u (task, queue, labels, o)
left join sluice.task t on t.name = u.task
cross join lateral (
  select count(*) as live, count(*) filter (where u.task = any (k.tasks)) as knowing,
         count(*) filter (where k.queues is null or u.queue = any (k.queues)) as serving,
         count(*) filter (where u.task = any (k.tasks) and (k.queues is null or u.queue = any (k.queues))) as both,
         count(*) filter (where u.task = any (k.tasks) and (k.queues is null or u.queue = any (k.queues))
           and k.labels ?& array(select x from unnest(string_to_array(u.labels, ',')) x where x <> '')) as able
  from sluice.worker k) w
order by u.o

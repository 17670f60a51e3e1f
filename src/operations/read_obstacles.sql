-- Reads, for tasks in queues, what keeps their jobs from workers: closed gates, and how many workers know the task,
-- serve the queue, do both, and have the labels, too; and the slots of these.
-- $1, $2: tasks and queues
-- $3: the labels that limits of their jobs go by, each as a text with commas; '': none
select u.o::integer as i,
       (select json_agg(json_build_object('gate', g.gate, 'reason', g.reason, 'by', g.by,
          'sinceMs', engine.unix_ms(g.since),
          'untilMs', engine.unix_ms(g.until)))
        from engine.find_closed_gates(u.queue, u.task, sluice.now()) g) as gates,
       w.knowing::integer, w.serving::integer, w.both::integer, w.able::integer, w.slots::integer, w.live::integer,
       t.currently, engine.unix_ms(t.seen_at) as seen_ms
from unnest($1::text[], $2::text[], $3::text[]) with ordinality u (task, queue, labels, o)
left join sluice.task t on t.name = u.task
cross join lateral (
  select count(*) as live, count(*) filter (where f.knows) as knowing, count(*) filter (where f.serves) as serving,
         count(*) filter (where f.knows and f.serves) as both,
         count(*) filter (where f.knows and f.serves and f.has) as able,
         coalesce(sum(k.slots) filter (where f.knows and f.serves and f.has), 0) as slots
  from sluice.worker k cross join lateral (
    select u.task = any (k.tasks) as knows, k.queues is null or u.queue = any (k.queues) as serves,
           k.labels ?& array(select x from unnest(string_to_array(u.labels, ',')) x where x <> '') as has) f) w
order by u.o

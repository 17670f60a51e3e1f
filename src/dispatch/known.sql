-- Notes which tasks a worker has the code of, and where their jobs go unless they say otherwise: for those who send by SQL.
-- $1 names, $2 their queues
insert into sluice.task as t (name, queue, seen_at)
select u.name, u.queue, n.now from unnest($1::text[], $2::text[]) u (name, queue) cross join (select sluice.now() as now) n order by u.name
on conflict (name) do update set queue = excluded.queue, seen_at = excluded.seen_at
where t.queue <> excluded.queue or t.seen_at < excluded.seen_at - interval '1 day'

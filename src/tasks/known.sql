-- Notes of which tasks a worker has the code, for those who send by SQL.
-- $1 names, $2 where their jobs go unless they say otherwise, $3 they may not be tried again in doubt, $4 the tasks that hear
-- of their failures
insert into sluice.task as t (name, queue, once, on_failed, seen_at)
select u.name, u.queue, nullif(u.once, false), u.on_failed, n.now
from unnest($1::text[], $2::text[], $3::boolean[], $4::text[]) u (name, queue, once, on_failed)
cross join (select sluice.now() as now) n order by u.name
on conflict (name) do update set queue = excluded.queue, once = excluded.once, on_failed = excluded.on_failed, seen_at = excluded.seen_at
where (t.queue, t.once, t.on_failed) is distinct from (excluded.queue, excluded.once, excluded.on_failed)
  or t.seen_at < excluded.seen_at - interval '1 day'

-- Notes that calls are revoked, also those whose messages were not read yet, or are being recorded in this moment.
-- $1 Celery's ids, $2 whether they are stopped if they run
insert into sluice.celery_call as c (id, job, call, created_at, replied_at, revoked_at)
select u.id, null, '{}', sluice.now(), sluice.now(), sluice.now()
from (select distinct id from unnest($1::text[]) g (id)) u order by u.id
on conflict (id) do update set revoked_at = excluded.revoked_at, terminated = c.terminated or $2::boolean
where c.replied_at is null and c.job is not null

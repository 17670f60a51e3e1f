-- Notes that calls are revoked, also those whose messages were not read yet.
-- $1 Celery's ids, $2 whether they are stopped if they run
with given as materialized (select distinct u.id from unnest($1::text[]) u (id)), held as materialized (
  select c.id from sluice.celery_call c where c.id = any ($1::text[]) order by c.id for update
), known as (
  update sluice.celery_call c set revoked_at = sluice.now(), terminated = c.terminated or $2::boolean
  from held h where c.id = h.id and c.replied_at is null and c.job is not null
)
insert into sluice.celery_call (id, job, call, created_at, replied_at, revoked_at)
select g.id, null, '{}', sluice.now(), sluice.now(), sluice.now() from given g order by g.id
on conflict (id) do nothing

-- Looks at calls of Celery producers that have no result yet: in order, or at those of certain jobs. Returns the number
-- of the last one (last; null: there are none), and a row for each one with news for its producer: its job has ended,
-- an attempt of it has begun, or failed and another one follows.
-- $1 number of the call after which to begin, $2 how many to look at
-- $3 jobs; null: in order
-- $4 whether beginnings matter
-- $5 how long ago, in ms, a job has ended or begun at least: the process that executes it reports it at once. Instants
-- that lie ahead, because the clock was set back, are old.
-- $6 how many bytes the news has at most, as they are stored; then those that follow are left out, but not the first
with open as materialized (
  (select c.n, c.id, c.job, c.call, c.reported from sluice.celery_call c
   where $3::uuid[] is null and c.replied_at is null and c.n > $1::bigint order by c.n limit $2::integer)
  union all
  (select c.n, c.id, c.job, c.call, c.reported from sluice.celery_call c
   where c.job = any ($3::uuid[]) and c.replied_at is null)
), news as materialized (
  select o.n, o.id, o.job, o.call, o.reported, h.state, h.reason, h.result, h.error, h.attempt,
    h.started_at, h.finished_at
  from open o cross join lateral (
    (select d.state, d.reason, d.result, d.error, d.attempt, d.started_at, d.finished_at
     from sluice.done d where d.id = o.job limit 1)
    union all
    (select f.state, f.reason, f.result, f.error, f.attempt, f.started_at, f.finished_at
     from sluice.failed f where f.id = o.job limit 1) limit 1) h
  cross join lateral (select sluice.now() - h.finished_at as ago) a
  where (a.ago < interval '0' or a.ago >= $5::integer * interval '1 ms')
    and not exists (select 1 from sluice.job j where j.id = o.job)
  union all
  select o.n, o.id, o.job, o.call, o.reported, case when j.claim is null then 'retry' else 'started' end,
    null, null, j.error, j.attempt, j.dispatched_at, null
  from open o join sluice.job j on j.id = o.job
  cross join lateral (select sluice.now() - j.dispatched_at as ago) a
  where j.attempt > 0 and case
    when j.claim is null then o.reported < 2 * j.attempt and j.error is not null
    else $4::boolean and o.reported < 2 * j.attempt - 1
      and (a.ago < interval '0' or a.ago >= $5::integer * interval '1 ms')
      and engine.state_of_job(j) = 'running' end
), sized as materialized (
  select w.*, coalesce(sum(coalesce(pg_column_size(w.call), 0) + coalesce(pg_column_size(w.result), 0)
    + coalesce(pg_column_size(w.error), 0)) over (order by w.n rows between unbounded preceding and 1 preceding), 0)
    < $6::bigint as fits
  from news w
)
select l.last, s.id, s.job::text, s.call::text, s.reported, s.state, s.reason, s.result::text, s.error::text, s.attempt,
  extract(epoch from s.started_at)::float8 * 1000 as started_ms,
  extract(epoch from s.finished_at)::float8 * 1000 as ended_ms
from (
  select coalesce((select min(z.n) - 1 from sized z where not z.fits), (select max(o.n) from open o)) as last
) l
left join sized s on s.fits

-- Reads what went on within the last minute: jobs that were sent, and that were done or failed, by task and queue, and
-- units granted by limit, less what was given back of these. It reads 20,000 rows of each at most.
-- lately: of these jobs, those of the last ten seconds
select 'task' as kind, x.task as name, x.queue, count(*)::float8 as n,
       (count(*) filter (where x.finished_at > sluice.now() - interval '10 seconds'))::float8 as lately,
       null::float8 as span_ms, null as currency
from ((select d.task, d.queue, d.finished_at from sluice.done d
       where d.finished_at > sluice.now() - interval '1 minute' and d.state = 'done' limit 20000)
      union all
      (select f.task, f.queue, f.finished_at from sluice.failed f
       where f.finished_at > sluice.now() - interval '1 minute' limit 20000)) x
group by x.task, x.queue
union all
select 'sent', x.task, x.queue, count(*)::float8, (count(*) filter (where x.id >= m.newest))::float8, null, null
from (select engine.id_floor(sluice.now_us() / 1000 - 60000) as least,
             engine.id_floor(sluice.now_us() / 1000 - 10000) as newest) m cross join lateral (
  (select j.id, j.task, j.queue from sluice.job j where j.id >= m.least limit 20000)
  union all
  (select d.id, d.task, d.queue from sluice.done d where d.id >= m.least limit 20000)
  union all
  (select f.id, f.task, f.queue from sluice.failed f where f.id >= m.least limit 20000)) x
group by x.task, x.queue
union all
select 'limit', u.name, null, u.n, null, u.span_ms,
       (select d.spec ->> 'currency' from sluice.limit_def d where d.name = u.name order by d.version desc limit 1)
from (select b.name, sum(l.units) filter (where l.counts)::float8 as n,
             -- If there are more rows, the newest cover a part of the minute.
             case when max(l.all_rows) = 20000 then (max(l.now_us) - min(l.at))::float8 / 1000 else 60000 end as span_ms
      from (select k.bucket, k.units, k.at, c.now_us, count(*) over () as all_rows,
                   -- A refund has a row of its own, which may be of an older grant.
                   (k.units > 0 or bool_or(k.units > 0) over (partition by k.bucket, k.claim))
                     and (k.cause in ('again', 'others')) is not true as counts
            from (select engine.limiter_now_us() as now_us) c cross join lateral (
              select g.bucket, g.units, g.at, g.claim, g.cause from sluice.ledger g
              where g.at > c.now_us - 60000000 order by g.at desc limit 20000) k) l
      join sluice.bucket b on b.id = l.bucket
      where strpos(b.name, '/') = 0  -- all jobs of a limit with a share are charged to its own bucket
      group by b.name) u

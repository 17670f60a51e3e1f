-- Reads what the ledger shows of a limit without keys whose rate is found (limits/adaptive.ts): its newest version, how
-- long its numbers have been in force (microseconds; its margin may have changed meanwhile), and
-- used: units granted in the last window;
-- is_refused: the vendor has refused a request in the last window, or the bucket is held for one;
-- accepted: units granted in the vendor's window, without those that were refused, before the newest refusal under
-- these numbers; null: there was none. The vendor's window ends when the hold ends, which is what a vendor states,
-- rounded up to whole seconds.
-- $1: the limit
-- $2: length of the rate's window, in microseconds
with newest as (
  select d.*, greatest(0, extract(epoch from sluice.now() - (
      select min(o.created_at) from sluice.limit_def o where o.name = d.name and o.key = '' and o.version > coalesce((
        select max(p.version) from sluice.limit_def p
        where p.name = d.name and p.key = '' and p.spec -> 'numbers' <> d.spec -> 'numbers'
      ), 0))) * 1000000)::bigint as age
  from sluice.limit_def d where d.name = $1 and d.key = '' order by d.version desc limit 1
), act as materialized (
  -- A refusal only holds: it is a row without units that lengthens the hold of a bucket on trial.
  select l.at, l.units, l.hold, t.now_us,
         l.units = 0 and l.trial_us > 0 and l.hold > lag(l.hold, 1, 0::bigint) over (order by l.at, l.n) as refuses,
         l.cause is distinct from 'others' as is_own
  from (select engine.limiter_now_us() as now_us) t
  join sluice.ledger l on l.bucket = sluice.hash64($1) and l.at > t.now_us - 3 * $2::bigint
), refusal as (
  select a.at, a.hold from act a cross join newest d
  where a.refuses and a.at > a.now_us - least(d.age, $2) order by a.at desc limit 1
)
select d.version, d.source, d.spec, d.age::float8 as age_us,
  (select coalesce(sum(a.units), 0) from act a where a.is_own and a.at > a.now_us - $2)::float8 as used,
  coalesce((select bool_or(a.refuses and a.at > a.now_us - $2 or a.hold > a.now_us) from act a), false) as is_refused,
  (select greatest(0, coalesce(sum(a.units) filter (where a.is_own), 0) - count(*) filter (where a.refuses))
   from act a cross join refusal r
   where a.at > r.hold - $2 - least(1000000, $2 / 60) and a.at <= r.at having count(r) > 0)::float8 as accepted
from newest d

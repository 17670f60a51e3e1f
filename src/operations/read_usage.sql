-- Reads what limits have used, by day or month: the sums in sluice.usage, and the ledger rows that these do not count
-- yet. The newest first, and within a period the greatest first.
-- $1: only this limit, by keys; null: all limits, the keys of each together
-- $2: only this key; null: all
-- $3: day or month
-- $4: from this time on, in ms since 1970: its day or month in UTC
-- $5: so many rows at most
with since as (
  select date_trunc($3, to_timestamp($4::float8 / 1000) at time zone 'UTC')::date as day
), bucket as materialized (
  select b.id, b.name, b.key, coalesce(s.at, -1) as at, coalesce(s.n, -1) as n
  from sluice.bucket b left join sluice.summed s on s.bucket = b.id
  cross join lateral (
    select 1 from sluice.ledger l
    where (l.bucket, l.at, l.n) > (b.id, coalesce(s.at, -1), coalesce(s.n, -1))
      and (l.bucket, l.at) < (b.id, 9223372036854775807)
    order by l.bucket, l.at, l.n limit 1) fresh
  where strpos(b.name, '/') = 0 and ($1::text is null or b.name = $1)
    and ($2::text is null or b.id = sluice.hash64($1 || ':' || $2))
), used as (
  select u.name, u.key, u.day, u.granted, u.refunded from sluice.usage u, since s
  where ($1::text is null or u.name = $1) and ($2::text is null or u.key = $2) and u.day >= s.day
  union all
  select b.name, b.key, d.day, d.granted, d.refunded
  from since s, bucket b cross join lateral engine.usage_by_day(b.id, b.at, b.n, 9223372036854775807) d
  where d.day >= s.day
)
select u.name as limit, case when $1::text is not null then nullif(u.key, '') end as key,
  to_char(date_trunc($3, u.day), case $3 when 'day' then 'YYYY-MM-DD' else 'YYYY-MM' end) as period,
  sum(u.granted - u.refunded)::float8 as units, sum(u.refunded)::float8 as refunded,
  (select d.spec ->> 'currency' from sluice.limit_def d where d.name = u.name order by d.version desc limit 1)
    as currency
from used u group by 1, 2, 3, u.name order by 3 desc, 4 desc, 1, 2 limit $5

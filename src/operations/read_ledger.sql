-- Reads the next rows of some buckets' ledgers, in order. Its conditions compare (bucket, at, n) as a whole, so that no
-- plan uses the index on `at` alone, and reads the rows of all buckets for each of them.
-- granted: for a row that gives back, the n of the row that granted it.
-- others: the row charges what others have used of the vendor's account (engine.charge_others).
-- $1: buckets
-- $2, $3: the row of each bucket after which to read (at, n)
-- $4: before this time
-- $5: how many rows of each bucket
select u.i::integer - 1 as i, l.at, l.n, l.version, l.units, to_json(l.earlier) as earlier, l.claim,
  to_json(l.debt) as debt,
  l.cause = 'others' as others,
  case when l.units < 0 then (
    select g.n from (
      select o.n, o.claim, o.units from sluice.ledger o
      where (o.bucket, o.at) >= (l.bucket, 0) and (o.bucket, o.at, o.n) < (l.bucket, l.at, l.n)
      order by o.bucket desc, o.at desc, o.n desc limit 10000) g
    where g.claim = l.claim and g.units > 0 limit 1) end as granted
from unnest($1::bigint[], $2::bigint[], $3::bigint[]) with ordinality u (bucket, at, n, i)
cross join lateral (
  select * from sluice.ledger k
  where (k.bucket, k.at, k.n) > (u.bucket, u.at, u.n) and (k.bucket, k.at) < (u.bucket, $4::bigint)
  order by k.bucket, k.at, k.n limit $5) l
order by u.i, l.at, l.n

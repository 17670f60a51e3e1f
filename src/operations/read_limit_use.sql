-- Reads how much of each rule of each limit is in use, for the buckets that were used last: units granted within the
-- length of a rate or window that ends now, and not given back, units that count in the period of a quota, places that
-- are taken. Rules of which nothing is used are left out.
-- until_ms: the end of a quota's period, in ms since 1970; null: no quota
with clock as (
  select engine.limiter_now_us() as us
), used as (
  select k.bucket as id from (select l.bucket, l.at from sluice.ledger l order by l.at desc limit 5000) k
  group by 1 order by max(k.at) desc limit 100
), bucket as (
  select b.id, b.name, b.key, row_number() over () as o
  from used u join sluice.bucket b on b.id = u.id where b.name !~ '/' and b.parked is null
), room as (
  select b.name, b.key, b.id, r.debt, r.weight, r.quota, r.version
  from (select array_agg(id order by o) as ids from bucket) a
  cross join lateral unnest(engine.bucket_room(a.ids, (select us from clock))) r join bucket b on b.o = r.ord
), rule as (
  select r.*, u.i::integer as i, u.rule ->> 'kind' as kind, u.rule ->> 'rate' as rate,
    (u.rule ->> 'units')::float8 as most, d.spec ->> 'currency' as currency,
    (u.rule ->> 'windowUs')::bigint as window_us
  from room r join sluice.limit_def d on d.name = r.name and d.version = r.version
  cross join lateral jsonb_array_elements(d.spec -> 'rules') with ordinality u (rule, i)
)
select s.* from (
  select u.name, u.key, u.kind, u.rate, u.most, u.currency,
    case u.kind when 'quota' then u.debt[u.i] when 'concurrency' then u.debt[u.i] / u.weight[u.i]
         else (select sum(g.units) from engine.kept_grants(u.id, (select us from clock) - u.window_us) g)
         end::float8 as used,
    case u.kind when 'quota' then u.quota[u.i][3] / 1000 end::float8 as until_ms
  from rule u) s
where s.used > 0 and s.kind <> 'pace' order by s.used / s.most desc, s.name, s.key

-- Reads the quotas that have reached a share at which an alarm is wanted, in their present period, the first reached
-- first: of each quota the greatest share, at most 100. Leaves out those that are below it again, or were changed.
-- used, most: units that count in the period, and that it holds.
-- starts, ends, at: the period, and when the share was reached; now: in microseconds of the store's clock.
select r.name as limit, r.key, r.rate, r.share::float8 as share, r.starts::float8 as starts, r.ends::float8 as ends,
  r.at::float8 as at, r.used::float8 as used, r.most::float8 as most, r.currency, c.us::float8 as now
from (select sluice.now_us() as us) c cross join lateral (
  select distinct on (b.name, b.key, b.rate) b.*, s.used, s.most, s.currency
  from sluice.budget b join sluice.bucket k on k.name = b.name and k.key = b.key
  cross join lateral (
    select l.quota, d.* from sluice.limit_def d cross join lateral (
      select o.quota, o.version from sluice.ledger o where o.bucket = k.id order by o.at desc, o.n desc limit 1) l
    where d.name = b.name and d.version = l.version) n
  cross join lateral (
    select n.quota[i][5] as used, n.capacity[i] as most, n.spec ->> 'currency' as currency
    from generate_subscripts(n.kind, 1) i
    where n.spec -> 'rules' -> (i - 1) ->> 'rate' = b.rate and n.kind[i] = 'quota' and n.quota[i][2] = b.starts) s
  where b.ends > c.us and b.starts <= c.us and s.used >= b.share * s.most
    -- A key that was not used since then has its state under the definition before.
    and exists (
      select 1 from (select d.spec from sluice.limit_def d
                     where d.name = b.name and d.key = k.def_key order by d.version desc limit 1) f,
        jsonb_array_elements(f.spec -> 'rules') r where r ->> 'rate' = b.rate)
  order by b.name, b.key, b.rate, b.share desc) r
order by r.at, r.name, r.key limit 100

-- What counts in each bucket of limits that others may share, as the ledger has it: to begin an epoch in Redis. None of
-- those that are as never used, and none of what is only this database's (what shares leave, places). $1: cap, as of a
-- claim
select case when b.key = '' then b.name else b.name || ':' || b.key end as take, r.version,
       greatest(0, r.hold - r.now_at)::float8 as hold_us,
       to_json(r.debt) as debt, to_json(r.slots) as slots, to_json(r.quota) as quota
from (select engine.limiter_us($1) as now_us) t
cross join lateral engine.room(array(
  select k.id from sluice.bucket k where strpos(k.name, '/') = 0 and k.key <> '*'
    and exists (select 1 from sluice.ledger l where l.bucket = k.id)), t.now_us) r
join sluice.bucket b on b.id = r.bucket
where r.version is not null and (r.margin is null or r.quota is not null)
  and (r.hold > r.now_at or 0 < any (r.debt) or 0 < any (r.slots) or 0 < any (r.quota))

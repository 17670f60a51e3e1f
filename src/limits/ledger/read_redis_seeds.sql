-- Returns what counts in each bucket of limits that others may share, from the ledger: an epoch in Redis begins with
-- it. Leaves out buckets that decide as if they had never been used, and buckets that are only this database's (pools,
-- what shares leave to others).
-- $1: latest time that the limiter's clock can show; null: unknown.
select case when b.key = '' then b.name else b.name || ':' || b.key end as take, r.version,
       greatest(0, r.hold - r.now_at)::float8 as hold_us,
       to_json(r.debt) as debt, to_json(r.parts) as parts, to_json(r.quota) as quota
from (select engine.limiter_now_us($1) as now_us) t
cross join lateral unnest(engine.bucket_room(array(
  select k.id from sluice.bucket k where strpos(k.name, '/') = 0 and k.id <> sluice.hash64(k.name || '*')
    and exists (select 1 from sluice.ledger l where l.bucket = k.id)), t.now_us)) r
join sluice.bucket b on b.id = r.bucket
where r.version is not null and (r.margin is null or r.quota is not null)
  and (r.hold > r.now_at or 0 < any (r.debt) or 0 < any (r.parts) or 0 < any (r.quota))

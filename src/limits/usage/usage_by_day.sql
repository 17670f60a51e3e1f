-- Returns what a bucket's ledger rows after (p_at, p_n), up to the time p_until, granted and gave back, by day. The day
-- is that of the store's clock in the zone of the quota that was in force (UTC if there was none). What was given back
-- counts on the day of its grant, if the grant is among the 1,000 rows before. Only these rows decide, so the result is
-- the same whenever it is read. What was charged once more for slow answers (engine.charge_again) was used once, and
-- what others have used (engine.charge_others) is none of the limit's. Its conditions compare (bucket, at, n) as a
-- whole, so that no plan uses the index on `at` alone, and reads the rows of all buckets for each of them. The planner
-- expects that such a condition matches much of the table, and would read all of it: so sequential scans are off.
-- p_at, p_n: a row of the bucket's ledger; the rows after it count.
-- p_until: time of the limiter's clock, in microseconds.
create or replace function engine.usage_by_day(p_bucket bigint, p_at bigint, p_n bigint, p_until bigint)
returns table (day date, granted numeric, refunded numeric)
language plpgsql stable set enable_seqscan = off set jit = off as $$
begin
  return query
  with change as (
    select case when l.units > 0 then l.at else coalesce((
        select g.at from (
          select o.at, o.claim, o.units from sluice.ledger o
          where (o.bucket, o.at) >= (p_bucket, 0) and (o.bucket, o.at, o.n) < (p_bucket, l.at, l.n)
          order by o.bucket desc, o.at desc, o.n desc limit 1000) g
        where g.claim = l.claim and g.units > 0 limit 1), l.at) end as at, l.version, l.units
    from sluice.ledger l
    where (l.bucket, l.at, l.n) > (p_bucket, p_at, p_n) and (l.bucket, l.at) <= (p_bucket, p_until) and l.units <> 0
      and (l.cause in ('again', 'others')) is not true
  ), second as (  -- the clock's offset and the calendar are looked up once a second
    select c.at / 1000000 * 1000000 as at, c.version, sum(greatest(c.units, 0)) as granted,
           sum(greatest(-c.units, 0)) as refunded
    from change c group by 1, 2
  ), zone as (
    select d.version, (
        select r -> 'quota' ->> 'zone' from jsonb_array_elements(d.spec -> 'rules') r where r ? 'quota' limit 1) as zone
    from sluice.bucket b join sluice.limit_def d on d.name = b.name
    where b.id = p_bucket and d.version in (select s.version from second s)
  )
  select engine.local_day(z.zone, (s.at - engine.clock_offset_at(s.at)) / 1000000), sum(s.granted), sum(s.refunded)
  from second s left join zone z using (version) group by 1;
end $$;

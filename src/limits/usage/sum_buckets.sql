-- Adds the ledger rows of these buckets that sluice.usage does not count yet, up to the time p_until, to that table. It
-- records the last row of each bucket that is counted (sluice.summed), so that each row counts once. Leaves out the
-- buckets beside a limit with a share, whose jobs are charged to the limit, too. The caller has the lock of usage.
-- p_until: time of the limiter's clock, in microseconds.
create or replace function engine.sum_buckets(p_buckets bigint[], p_until bigint) returns void
language plpgsql set enable_seqscan = off set jit = off as $$
begin
  -- One statement has one snapshot: the rows that it adds are those up to the one that it records.
  with bucket as materialized (
    select b.id, b.name, b.key, coalesce(s.at, -1) as at, coalesce(s.n, -1) as n, l.at as last_at, l.n as last_n
    from sluice.bucket b
    left join lateral (select o.at, o.n from sluice.summed o where o.bucket = b.id limit 1) s on true
    cross join lateral (
      select o.at, o.n from sluice.ledger o where (o.bucket, o.at) between (b.id, 0) and (b.id, p_until)
      order by o.bucket desc, o.at desc, o.n desc limit 1) l
    where b.id = any (p_buckets) and strpos(b.name, '/') = 0
  ), fresh as materialized (
    select * from bucket b where (b.last_at, b.last_n) > (b.at, b.n)
  ), counted as (
    insert into sluice.usage as u (name, key, day, granted, refunded)
    select f.name, f.key, d.day, d.granted, d.refunded
    from fresh f cross join lateral engine.usage_by_day(f.id, f.at, f.n, p_until) d
    on conflict (name, key, day) do update
      set granted = u.granted + excluded.granted, refunded = u.refunded + excluded.refunded
  )
  insert into sluice.summed as s (bucket, at, n) select f.id, f.last_at, f.last_n from fresh f
  on conflict (bucket) do update set at = excluded.at, n = excluded.n;
end $$;

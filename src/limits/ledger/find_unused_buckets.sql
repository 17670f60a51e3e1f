-- Returns those of these buckets that decide as if they had never been used, with their newest ledger row (at, n; null:
-- none was ever written). That row is the only one left, is older than p_before and than all that a rule in force looks
-- back on, and records no debt, no running job and no hold. A bucket that has definitions of its own is none of them.
-- Locks nothing: a caller that acts on the answer checks under lock that the row is still the newest.
-- p_buckets: their ids.
-- p_now, p_before: times of the limiter's clock, in microseconds.
create or replace function engine.find_unused_buckets(p_buckets bigint[], p_now bigint, p_before bigint)
returns table (bucket bigint, at bigint, n bigint) language plpgsql stable set enable_seqscan = off set jit = off as $$
begin
  return query
  with old as materialized (
    select b.id, l.at, l.n from sluice.bucket b
    left join lateral (select o.at, o.n
      from sluice.ledger o where o.bucket = b.id order by o.at desc, o.n desc limit 1) l on true
    where b.id = any (p_buckets) and b.def_key = '' and (l.at is null or l.at < p_before and not exists (
      select 1 from sluice.ledger o where o.bucket = b.id and (o.at, o.n) < (l.at, l.n)))
  )
  select o.id, o.at, o.n from old o cross join lateral unnest(engine.bucket_room(array[o.id], p_now)) r
  where o.at is null or (r.hold <= p_now and 0 = all (r.debt) and o.at < p_now - (
    select max(s)
      from sluice.bucket b join sluice.limit_def d on d.name = b.name and d.version = r.version, unnest(d.span) s
    where b.id = o.id));
end $$;

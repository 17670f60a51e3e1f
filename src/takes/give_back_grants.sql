-- Gives back what grants hold: a taker's place in a bucket with a concurrency rule, and units, which count as if they
-- had not been granted. A second call for the same grant does nothing, except for a claim's grant, which several jobs
-- share. The caller holds the buckets' locks, and makes their lists due afterwards (`engine.make_lists_due`).
-- p_grants, p_buckets: grants and buckets, pair by pair.
-- p_units: unused units of each pair; never more is refunded than is left of the grant. Null: none.
create or replace function engine.give_back_grants(p_grants uuid[], p_buckets bigint[], p_units bigint[]) returns void
language plpgsql as $$
declare
  v_places bigint[];
begin
  perform engine.refund_units(u.bucket, u.id, u.units, p_unused => true)
  from unnest(p_grants, p_buckets, p_units) u (id, bucket, units) where u.units > 0;
  with gone as (
    delete from sluice.lease l using unnest(p_grants, p_buckets) u (id, bucket)
    where l.id = u.id and l.bucket = u.bucket returning l.bucket
  )
  select array_agg(g.bucket) into v_places from gone g;
  perform engine.release_places(array_agg(b.id), array_agg(b.places))
  from (select id, count(*)::integer as places from unnest(v_places) p (id) group by 1) b having count(*) > 0;
end $$;

-- Gives back the grants of jobs whose attempt made no call, and has those who wait for that room look at once. p_claims:
-- the claim that handed out each of p_ids. The jobs are locked, so that of two like requests one finds nothing.
create or replace function sluice.unused_v1(p_ids uuid[], p_claims uuid[]) returns void language plpgsql as $$
declare
  v_buckets bigint[];
  v_of uuid[];
  v_units integer[];
  v_now bigint;
begin
  with mine as (
    select j.claim, j.takes from sluice.job j
    join unnest(p_ids, p_claims) u (id, claim) on j.id = u.id and j.claim = u.claim for update of j
  ), used as (
    select b.id, m.claim, count(*)::integer as units
    from mine m cross join lateral (select distinct sluice.hash64(t) as id from unnest(m.takes) t) b group by 1, 2
  )
  select array_agg(id), array_agg(claim), array_agg(units) into v_buckets, v_of, v_units from used;
  if v_buckets is null then return; end if;
  perform sluice.lock_v1(v_buckets);
  v_now := sluice.now_us();
  perform sluice.refund_v1(u.bucket, u.claim, u.units) from unnest(v_buckets, v_of, v_units) u (bucket, claim, units);
  perform sluice.sooner_v1(array(select distinct b from unnest(v_buckets) b), v_now);
end $$;

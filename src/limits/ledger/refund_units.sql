-- Gives back units that a claim (or engine.acquire_grants) was granted and did not use, at most what is left of them:
-- the bucket becomes as if they had not been granted, but for a quota's period before (engine.count_in_quotas). The
-- debt never falls below what later grants alone would have made of it; test/limits/specification.ts explains why, and
-- does the same. All is computed under the definition in
-- force, whatever the grant's was: engine.rebuild_bucket_state has counted the grant under it, as far as it counts.
-- Nothing is given back after 1,000 further rows, or to a parked bucket. The row that is appended has negative units
-- (places of concurrency are released separately). It has the bucket's own time: what drains later drains from less,
-- which comes to the same, and no step of the clock matters. If each unit had an instant of its own
-- (engine.grant_ahead), it is not known which of them were not used, so all but the first count as later grants. The
-- caller has locked the bucket.
-- p_claim: id of the grant.
-- p_units: units not used.
-- p_full: gives them all back at once, for a vendor that itself refunds.
-- p_unused: nothing was sent under the grant. If it was to show whether the vendor accepts requests again
-- (engine.refuse_buckets), the bucket is no longer held for its answer: the next grant tries instead.
create or replace function engine.refund_units(p_bucket bigint, p_claim uuid, p_units bigint,
  p_full boolean default false, p_unused boolean default false)
returns void
language plpgsql as $$
declare
  v_rooms engine.room[];
  v_def sluice.limit_def;
  v_grant record;
  v_row record;
  v_at bigint;
  v_debt bigint[];
  v_room engine.room;
begin
  select d.* into v_def from sluice.bucket b join sluice.limit_def d on d.name = b.name and d.key = b.def_key
  where b.id = p_bucket and b.parked is null order by d.version desc limit 1;
  select max(g.n) filter (where g.units > 0) as n, max(g.at) filter (where g.units > 0) as at,
         max(g.earlier) as earlier, sum(g.units)::bigint as units into v_grant
  from (select * from sluice.ledger l where l.bucket = p_bucket order by l.at desc, l.n desc limit 1000) g
  where g.claim = p_claim;
  if v_grant.n is null or v_def.version is null then return; end if;
  p_units := least(p_units, v_grant.units);
  if p_units <= 0 then return; end if;
  -- Most of the claim was not used, so claims get nothing ahead for a while. Only a bucket that all of its jobs need
  -- shows that. A single take (its id has version 4) shows nothing.
  if cardinality(v_grant.earlier) > 2 * (v_grant.units - p_units) and get_byte(uuid_send(p_claim), 6) >> 4 <> 4
    and not exists (
    select 1 from sluice.ledger l where l.at = v_grant.at and l.claim = p_claim
      and cardinality(l.earlier) > cardinality(v_grant.earlier))
  then
    perform engine.stop_grants_ahead(array[p_bucket], engine.limiter_now_us() + 2000000); end if;
  v_at := v_grant.at - coalesce(v_grant.earlier[1], 0);
  v_debt := array_fill(0::bigint, array[cardinality(v_def.kind)]);
  for v_row in
    select v_grant.at - e as at, 1 as units, 0 as n from unnest(v_grant.earlier[2:]) e
    union all
    select l.at, l.units + coalesce(r.units, 0), l.n
    from sluice.ledger l
    left join (select claim, sum(units)::bigint as units from sluice.ledger
               where bucket = p_bucket and at >= v_grant.at and n > v_grant.n and units < 0
               group by claim) r on r.claim = l.claim
    where l.bucket = p_bucket and l.at >= v_grant.at and l.n > v_grant.n and l.units > 0
    order by n, at
  loop
    -- Use beyond a grant (engine.charge_overrun) may be more than a bigint holds.
    v_debt := array(select least(engine.drain_debt(d, w, v_row.at - v_at) + v_row.units * u::numeric,
      2305843009213693952)
                    from unnest(v_debt, v_def.drain, v_def.weight) with ordinality t (d, w, u, i) order by i);
    v_at := v_row.at;
  end loop;
  v_rooms := engine.bucket_room(array[p_bucket], 0);
  select * into v_room from unnest(v_rooms) r where r.version = v_def.version;
  if p_unused and v_room.hold = v_grant.at + v_room.trial_us then v_room.hold := v_grant.at; end if;
  perform engine.append_ledger(array[v_room], p_claim, array[-p_units], null, v_grant.at,
    case when not p_full then
      array(select least(engine.drain_debt(d, w, v_room.now_at - v_at), own)  -- a pace may have made room since
            from unnest(v_debt, v_def.drain, v_room.debt) with ordinality t (d, w, own, i) order by i) end);
end $$;

-- Charges units that were used beyond a grant: a debt, which may exceed what the bucket holds. As `settle` in
-- test/limits/specification.ts: the units count at the time of the grant, or now if that is not known. The row that is
-- appended has no claim, so these units cannot be given back. The caller has locked the bucket.
-- p_claim: id of the grant; null: the units count now.
-- p_units: units used beyond it.
-- p_cause: as in engine.append_ledger.
create or replace function engine.charge_overrun(p_bucket bigint, p_claim uuid, p_units bigint, p_now bigint,
  p_cause text default null)
returns void
language plpgsql as $$
begin
  if p_units < 1 then return; end if;
  -- A parked bucket gets no ledger row; the one that it gets at its release charges these units.
  update sluice.parked set used = used + p_units where kind = 'bucket' and id = p_bucket
    and exists (select 1 from sluice.bucket b where b.id = p_bucket and b.parked);
  perform engine.append_ledger(array[r::engine.room], null, array[p_units], null, coalesce(
    case when p_claim is not null then
      (select g.at from (select *
        from sluice.ledger l where l.bucket = p_bucket order by l.at desc, l.n desc limit 1000) g
       where g.claim = p_claim and g.units > 0 limit 1) end,
    (select c.at from sluice.claim c where c.id = p_claim), r.now_at), p_cause => p_cause)
  from unnest(engine.bucket_room(array[p_bucket], p_now)) r;
end $$;

-- What a bucket granted after p_from, and was not given back.
create or replace function engine.kept(p_bucket bigint, p_from bigint) returns table (at bigint, n bigint, units bigint)
language sql stable as $$
  select l.at, l.n, l.units + coalesce(b.units, 0)
  from sluice.ledger l
  left join (select r.claim, sum(r.units) as units from sluice.ledger r
             where r.bucket = p_bucket and r.at > p_from and r.units < 0 group by 1) b on b.claim = l.claim
  where l.bucket = p_bucket and l.at > p_from and l.units > 0
$$;

-- Returns what a bucket granted after p_from and did not get back: one row for each grant. Reads the bucket's ledger
-- rows once, because they are wide and may be many.
-- again: these units were charged once more (engine.charge_again).
-- p_from: time of the limiter's clock, in microseconds.
create or replace function engine.kept_grants(p_bucket bigint, p_from bigint)
returns table (at bigint, n bigint, units bigint, again boolean)
language sql stable as $$
  with seen as materialized (
    select l.at, l.n, l.units, l.claim, l.cause
      from sluice.ledger l where l.bucket = p_bucket and l.at > p_from and l.units <> 0)
  select g.at, g.n, g.units + coalesce(b.units, 0), g.cause is not distinct from 'again'
  from seen g
  left join (select r.claim, sum(r.units) as units from seen r where r.units < 0 group by 1) b on b.claim = g.claim
  where g.units > 0
$$;

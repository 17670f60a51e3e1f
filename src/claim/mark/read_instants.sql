-- Returns when the jobs of a claim may begin, in order, if they were granted ahead of time (`engine.grant_ahead`);
-- null: all may begin since the claim.
create or replace function engine.read_instants(p_claim uuid) returns bigint[] language plpgsql stable as $$
begin
  return (
    select array_agg(l.at - e order by l.at - e)
    from sluice.claim c
    join sluice.ledger l on l.at >= c.at and l.at <= c.at + engine.most_ahead_us() and l.claim = c.id,
         unnest(l.earlier) e
    where c.id = p_claim);
end $$;

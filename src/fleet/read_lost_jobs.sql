-- Reads which of these jobs are no longer in the hands of the claim that handed them out: they were cancelled, or given
-- to other workers.
-- $1 ids, $2 their claims
-- ix: their positions there, from 1; two may be attempts of one job.
select u.ix::integer as ix from unnest($1::uuid[], $2::uuid[]) with ordinality u (id, claim, ix)
where not exists (select 1 from sluice.job j where j.id = u.id and j.claim = u.claim offset 0)

-- Reads which of these jobs are no longer in the hands of the claim that handed them out: they were cancelled, or given
-- to other workers.
-- $1 ids, $2 their claims
select u.id from unnest($1::uuid[], $2::uuid[]) u (id, claim)
where not exists (select 1 from sluice.job j where j.id = u.id and j.claim = u.claim offset 0)

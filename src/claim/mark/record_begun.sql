-- Records which jobs workers of dispatchers have begun. Leaves out claims that another transaction has locked, and
-- returns them, so that the caller tries again.
-- p_claims, p_seqs: the jobs
create or replace function engine.record_begun(p_claims uuid[], p_seqs bigint[]) returns setof uuid
language plpgsql set enable_seqscan = off set jit = off as $$
begin
  return query with free as materialized (
    select c.id from sluice.claim c where c.id = any (p_claims) for update of c skip locked
  ), recorded as (
    update sluice.claim c set begun = array(
      select unnest(c.begun) union select u.seq from unnest(p_claims, p_seqs) u (claim, seq) where u.claim = c.id)
    from free f where c.id = f.id
  )
  select c.id from sluice.claim c where c.id = any (p_claims) and c.id not in (select f.id from free f);
end $$;

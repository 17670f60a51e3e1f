-- Records which jobs have begun: those of a dispatcher when its workers report it; jobs that were granted ahead of
-- time, just before they begin (claim/begins.ts). Leaves out claims that another transaction has locked.
-- p_claims, p_seqs: the jobs
-- claim, locked: those of the claims that there are; of locked ones nothing was recorded, and the caller tries again
create or replace function engine.record_begun(
  p_claims uuid[], p_seqs bigint[], out claim uuid, out locked boolean) returns setof record
language plpgsql set enable_seqscan = off set jit = off as $$
begin
  return query with free as materialized (
    select c.id from sluice.claim c where c.id = any (p_claims) for update of c skip locked
  ), recorded as (
    update sluice.claim c set begun = array(
      select unnest(c.begun) union select u.seq from unnest(p_claims, p_seqs) u (claim, seq) where u.claim = c.id)
    from free f where c.id = f.id
  )
  select c.id, c.id not in (select f.id from free f) from sluice.claim c where c.id = any (p_claims);
end $$;

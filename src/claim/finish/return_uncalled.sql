-- Puts back jobs whose attempts were not begun, and do not count. The caller has released what they held
-- (`engine.release_attempts`). Returns their number.
-- p_ids, p_claims: the jobs, and the claims that handed them out
create or replace function engine.return_uncalled(p_ids uuid[], p_claims uuid[]) returns integer
language plpgsql as $$
declare
  v_count integer;
begin
  update sluice.job j set claim = null, due_at = sluice.now(), attempt = j.attempt - 1
  from unnest(p_ids, p_claims) u (id, claim) where j.id = u.id and j.claim = u.claim;
  get diagnostics v_count = row_count;
  return v_count;
end $$;

-- Puts back jobs whose attempts were not begun, and do not count. The caller has locked their classes
-- (`engine.lock_classes_of_jobs`), and released what they held (`engine.release_attempts`). Returns their number.
-- p_ids, p_claims: the jobs, and the claims that handed them out
create or replace function engine.return_uncalled(p_ids uuid[], p_claims uuid[]) returns integer
language plpgsql as $$
declare
  v_back uuid[];
begin
  with back as (
    update sluice.job j set claim = null, attempt = j.attempt - 1
    from unnest(p_ids, p_claims) u (id, claim) where j.id = u.id and j.claim = u.claim returning j.id
  )
  select array_agg(id) into v_back from back;
  if v_back is not null then perform engine.announce_jobs(v_back); end if;
  return coalesce(cardinality(v_back), 0);
end $$;

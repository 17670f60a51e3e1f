-- Forgets the failures of these scopes, because the vendor has served a request. As engine.count_failures, it is called
-- on its own.
create or replace function engine.forget_failures(p_scopes bigint[]) returns void
language sql as $$
  delete from sluice.failure where scope = any (array(
    select f.scope from sluice.failure f where f.scope = any (p_scopes) order by f.scope for update))
$$;

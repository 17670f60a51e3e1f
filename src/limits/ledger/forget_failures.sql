-- Forgets the failures of these scopes, because the vendor has served a request. As engine.count_failures, it is called
-- on its own.
-- $1: the scopes
delete from sluice.failure where scope = any (array(
  select f.scope from sluice.failure f where f.scope = any ($1::bigint[]) order by f.scope for update))

-- Composite types that the functions of this module pass to each other. They are in the schema of the functions, not of
-- the tables, because a release may change them.

-- A taker, or a running job (takes/acquire_grants.sql). Times in microseconds.
-- line: its id in the line; null: it does not wait.
-- n: its place in the line, if it had one before.
-- wait: how long it would wait; null: for ever.
-- holder: the process that holds the leases that it takes; null: a job.
-- life: how long that process keeps them after a sign of life.
-- id: of the grant that it wants; a UUID of version 4 for a taker (limits/takers/jobs_have_turn.sql).
-- requested_ago: how long ago the grant was first requested; it may have been granted then. Null: it was not.
-- back: an unused grant to give back first; null: none.
-- back_units: units of each bucket to give back (`engine.give_back_grants`).
-- ord: its place in the call.
-- units, earlier: how many units of each bucket earlier takers keep free for themselves, and how many takers these
-- are.
create type engine.taker as (
  line uuid, n bigint, wait bigint, holder uuid, life bigint,
  id uuid, requested_ago bigint, back uuid, back_units bigint[], ord integer, units bigint[], earlier bigint[]);

-- Composite types that the functions of this module pass to each other. They are in the schema of the functions, not of
-- the tables, because a release may change them.

-- A taker (takes/acquire_grant.sql). Times in microseconds.
-- line: its id in the line; null: it does not wait.
-- n: its place in the line, if it had one before.
-- wait: how long it would wait; null: for ever.
-- holder: the process that holds the leases that it takes.
-- life: how long that process keeps them after a sign of life.
create type engine.taker as (line uuid, n bigint, wait bigint, holder uuid, life bigint);

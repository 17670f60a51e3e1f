-- Composite types that the functions of this module pass to each other. They are in the schema of the functions, not of
-- the tables, because a release may change them.

-- What a bucket has used, as limits/definitions/rebuild_bucket_state.sql computes it again.
create type engine.state as (debt bigint[], slots integer[], quota bigint[]);

-- What a bucket allows, as limits/room/bucket_room.sql returns it: a claim charges the same state that it has decided
-- by.
create type engine.room as (
  ord integer, bucket bigint, n bigint, now_at bigint, debt bigint[], slots integer[], quota bigint[], version integer,
  kind text[], drain bigint[], weight bigint[], slot bigint[], margin bigint[], hold bigint, avail bigint, next bigint,
  period bigint, slack bigint, stale boolean, units bigint, places bigint, most bigint, life bigint, wall bigint,
  probe bigint, read_at bigint);

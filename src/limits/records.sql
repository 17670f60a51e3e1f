-- What the functions of this module hand to each other. The types stand beside the functions, not beside the tables, because a
-- release may change them.

-- What a bucket has used, as rebuild.sql makes it anew.
create type engine.state as (debt bigint[], slots integer[], quota bigint[]);

-- What a bucket allows, as room.sql says it: a claim charges what it has decided by.
create type engine.room as (
  ord integer, bucket bigint, n bigint, now_at bigint, debt bigint[], slots integer[], quota bigint[], version integer,
  kind text[], drain bigint[], weight bigint[], slot bigint[], margin bigint[], hold bigint, avail bigint, next bigint,
  period bigint, slack bigint, stale boolean, units bigint, places bigint, most bigint, life bigint, wall bigint);

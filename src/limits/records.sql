-- Composite types that the functions of this module pass to each other. They are in the schema of the functions, not of
-- the tables, because a release may change them.
--
-- Parameters that recur in the functions of all modules. They are explained here once; a header explains only what
-- differs.
-- p_now: the limiter's clock, in microseconds, as are other times that are numbers.
-- p_at, p_wall: what the store's clock shows then.
-- p_cap: the latest time that the limiter's clock can show, by the caller's monotonic clock; null: unknown.
-- p_bucket, p_buckets: ids of buckets. p_rooms: what these allow, read under their locks (engine.bucket_room).
-- p_ord: a bucket's position in that call.
-- p_further: for one more request of a running job, to which concurrency does not apply, nor a pause.
-- p_need: units of each bucket that are waited for. p_claim: the claim or the take that units are granted to.

-- The room of a bucket, as limits/room/bucket_room.sql returns it: a claim charges the same state that it has decided
-- by.
create type engine.room as (
  ord integer, bucket bigint, n bigint, now_at bigint, debt bigint[], parts integer[], quota bigint[], version integer,
  kind text[], drain bigint[], weight bigint[], part_us bigint[], margin bigint[], hold bigint, avail bigint,
  next bigint, period bigint, slack bigint, stale boolean, units bigint, places bigint, most bigint, life bigint,
  wall bigint, trial_us bigint, read_at bigint);

-- The state of a bucket that limits/definitions/renewed_state.sql returns: its newest ledger row (null: it has none)
-- and its definition.
create type engine.state as (bucket bigint, newest sluice.ledger, def sluice.limit_def);

-- Grants of a claim ahead of time (engine.grant_lanes_ahead). deciding: the position of the bucket that decides the
-- instants; null: nothing is granted ahead. instants: when each of the jobs may begin, in order; null: no more jobs
-- than those that may begin now are granted. rooms: with instants, the buckets at the last of them, with what they
-- allow until then (avail); that one as engine.grant_ahead returns it. early_us: how long before that one has room its
-- list is due, in microseconds.
create type engine.ahead as (deciding integer, instants bigint[], rooms engine.room[], early_us bigint);

-- The order in which jobs wait (classes, lanes and their lists), claims, and gates.

-- A task in a queue: what a worker serves or does not. All data below with a class are read and written only under the
-- class's advisory lock.
create table sluice.class (
  id bigint primary key,
  queue text not null,
  task text not null,
  -- The limits of its jobs that use labels, as in buckets (`ip@host`), in order; null: none. They are part of a
  -- class's identity: a worker whose label has no room skips the class, not the lanes.
  labels text[],
  -- The number that is added to its turns when they are compared with those of other classes.
  lift bigint not null default 0,
  -- A fair key of the class has more than one lane.
  grouped boolean not null default false,
  -- Set: nothing waits, senders announce the class again through class 0, and the row is deleted when every transaction
  -- sees it as retired. The transaction that set it.
  retired xid8
);
create index class_task on sluice.class (task, queue) where retired is null;
create index class_retired on sluice.class (id) where retired is not null;
create index class_labels on sluice.class (id) where labels is not null;

-- The newest row records how far a class's arrivals were read: everything visible in `snap`, in which the reader's own
-- transaction counts as still in progress (claim/arrivals/snapshot_without_own.sql). While a portion is left, `target`
-- is the snapshot that is being read, in the order (xid, lane, pos), and the last three columns are the position.
create table sluice.class_state (
  class bigint not null,
  n bigint not null,
  snap pg_snapshot not null,
  -- Approximate number of its waiting jobs.
  waiting bigint not null,
  target pg_snapshot,
  at_xid xid8,
  at_lane bigint,
  at_pos bigint,
  primary key (class, n)
);

-- Rows of the next two tables change with each claim. While some transaction keeps an old snapshot (a backup), their
-- dead versions stay, so no query may read them: `v` counts the changes of a row, and the newest version comes first in
-- the key; turns are read from a floor on.

-- Jobs of one (queue, task, priority, fair key, buckets), strictly in order of seq.
-- list: null = no job waits; 0 = ready; 1 = parked; else the bucket whose room it waits for.
-- vstart: the virtual start of its fair key; null: it is behind another lane of that key in its list. The fair key is
-- as far as the farthest of its lanes.
-- rank: the lanes of a fair key are ordered by it, the smallest first (engine.lane_rank).
-- bound: no waiting job of the lane has a smaller seq, so a claim never reads older rows.
-- denied: how often in a row a bucket that it waited for had room and another one had none.
-- costed: its jobs have costs; those of other lanes are taken without reading the costs of each.
create table sluice.lane (
  id bigint not null,
  v bigint not null default 0,
  class bigint not null,
  list bigint,
  vstart bigint,
  rank integer not null,
  fair bigint not null,
  bound bigint not null,
  denied smallint not null default 0,
  priority smallint not null,
  weight integer not null,
  buckets bigint[] not null,
  costed boolean not null,
  primary key (id, v)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index lane_turn on sluice.lane (class, list, vstart, id) where list is not null and vstart is not null;
create index lane_behind on sluice.lane (class, list, fair, rank, id) where list is not null and vstart is null;
create index lane_fair on sluice.lane (class, fair, vstart desc) where vstart is not null;

-- The lists of a class: list 0 has the ready lanes, and there is one for each bucket that lanes wait for.
-- floor: no turn in the list is before it.
-- due: when to read the list (for list 0: since when lanes are ready, rounded to seconds; null: there are none).
-- period, slack: of the bucket; a worker that sleeps until due computes from them how much longer it may wait.
-- early_us: how long before the bucket has room it is due, because claims grant ahead of time.
create table sluice.list (
  class bigint not null,
  id bigint not null,
  v bigint not null default 0,
  floor bigint not null,
  due bigint,
  period bigint,
  slack bigint,
  early_us bigint not null default 0,
  primary key (class, id, v)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index list_due on sluice.list (class, due) where due is not null;
create index list_bucket on sluice.list (id) where id <> 0;
create index list_early on sluice.list (class) where early_us > 0;

-- Units of a bucket that are kept for the next job of a lane: it needs more of them than are free, or it waits for
-- another bucket meanwhile. `since`: from when on; the earlier of two reservations has precedence. It expires at until.
create table sluice.reservation (
  bucket bigint not null,
  class bigint not null,
  lane bigint not null,
  need bigint not null,
  since bigint not null,
  until bigint not null,
  primary key (bucket, lane)
) with (fillfactor = 50);
create index reservation_lane on sluice.reservation (class, lane);

-- One row per claim with unfinished jobs: with it a repeated claim adopts the jobs of a lost reply, and a rescue finds
-- the jobs of a lost worker. instants: when each job may begin, in the limiter's time, if they were granted ahead of
-- time. begun: the seqs of the jobs that have begun, of a dispatcher's claim, or of one ahead of time.
create table sluice.claim (
  id uuid primary key,
  worker bigint not null,
  at bigint not null,
  lanes bigint[] not null,
  seqs bigint[] not null,
  begun bigint[],
  instants bigint[]
) with (toast_tuple_target = 8160); -- Compressing the 4 KB of 250 jobs takes longer than all else about the row.
create index claim_worker on sluice.claim (worker, at);

-- Gates hold back whole classes: jobs of these queues and tasks (patterns, * for any text; null: any) start only in
-- these hours of these days (ISO, 1 is Monday; null: every day) in the local time of the zone. Hours may cross
-- midnight: then they belong to the day on which they begin. Without hours: never (a pause).
create table sluice.gate (
  name text primary key,
  queues text[],
  tasks text[],
  zone text,
  days smallint[],
  from_min integer check (from_min between 0 and 1439),
  to_min integer check (to_min between 0 and 1440 and to_min <> from_min),
  reason text not null,
  by text not null,
  created_at timestamptz not null,
  -- Null: until it is removed. A rule's gate stays in force while a worker that has the rule renews it.
  alive_until timestamptz,
  check ((zone is null) = (from_min is null) and (zone is null) = (to_min is null))
);

-- Things that claims skip because they failed on their data, until an operator releases them: a job is due at infinity,
-- a lane is in list 1, which no claim reads, a bucket has no room. A row of something that no longer exists has no
-- effect.
create table sluice.parked (
  kind text not null check (kind in ('job', 'lane', 'bucket')),
  -- The id of the lane or the bucket; null for a job.
  id bigint,
  job uuid,
  -- The name for operators: the job's id, `limit:key`, or `task in queue, lane id`.
  name text not null,
  error text not null,
  -- The SQLSTATE.
  code text,
  at timestamptz not null,
  -- The release of a bucket applies these two: units that attempts used beyond their grants while it was parked, and
  -- the time (us) until which a vendor demanded a pause.
  used bigint not null default 0,
  hold bigint not null default 0,
  primary key (kind, name)
);

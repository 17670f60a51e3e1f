-- Who waits in which order: classes, lanes and their lists; claims; gates.

-- A task in a queue: what a worker serves or does not. Everything below that has a class is read and written only under
-- the class's advisory lock.
create table sluice.class (
  id bigint primary key,
  queue text not null,
  task text not null,
  -- Those of its jobs' limits that go by labels, as in takes (`ip@host`), in order; null: none. They belong to what a class
  -- is: a worker whose label has no room leaves out the class, not the lanes.
  labels text[],
  -- What its turns are to be put forward by where they are compared with those of other classes.
  lift bigint not null default 0
);
create index class_labels on sluice.class (id) where labels is not null;

-- The newest row says what has been absorbed of a class: everything visible in `snap`, but for the absorber's own `xid`.
create table sluice.absorbed (
  class bigint not null,
  n bigint not null,
  snap pg_snapshot not null,
  xid xid8 not null,
  primary key (class, n)
);

-- Rows of the next four tables change with each claim. While some transaction keeps an old snapshot (a backup), their
-- dead versions stay, so none may be walked: `v` counts the changes of a row, and the newest version stands first in the
-- key (dispatch/lane.sql); turns are addressed by their whole key, and read from a floor on.

-- Waiting jobs of one (queue, task, priority, fair key, buckets), strict FIFO by seq.
-- list: null = no waiting job; 0 = ready; else the bucket whose room it waits for.
-- bound: no waiting job of the lane has a smaller seq, so a claim never reads what is behind it.
create table sluice.lane (
  id bigint not null,
  v bigint not null default 0,
  class bigint not null,
  list bigint,
  priority smallint not null,
  bound bigint not null,
  n bigint not null,
  weight integer not null default 1,
  fair bigint not null,
  buckets bigint[] not null,
  -- What a waiting lane is seated under (engine.rank): the smaller comes first among the lanes of a fair key.
  rank integer not null default 0,
  -- Its jobs have costs; those of other lanes are taken without looking at each.
  costed boolean not null default false,
  primary key (id, v)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Where a waiting lane stands. Written only when a lane changes its list.
create table sluice.seat (
  class bigint not null,
  list bigint not null,
  fair bigint not null,
  rank integer not null,
  lane bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Not unique: the check would walk the dead rows of a lane that came and went.
create index seat_order on sluice.seat (class, list, fair, rank, lane);

-- A fair key in a class: whose turn it is next (the smaller virtual start), and how many of its lanes wait.
create table sluice.fair (
  class bigint not null,
  id bigint not null,
  v bigint not null default 0,
  vstart bigint not null,
  lanes integer not null default 0,
  primary key (class, id, v)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- The order of turns in a list: one row for each fair key that has lanes there. vstart may be behind that of the fair
-- key, never ahead of it; whoever reads it corrects it.
create table sluice.turn (
  class bigint not null,
  list bigint not null,
  vstart bigint not null,
  fair bigint not null,
  primary key (class, list, vstart, fair)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- The lists of a class: 0 of the ready lanes, and one for each bucket that lanes wait for. floor: no turn stands before
-- it. due: when to look at it again (null: at once), and how patient a sleeper may be.
create table sluice.list (
  class bigint not null,
  id bigint not null,
  v bigint not null default 0,
  floor bigint not null,
  due bigint,
  period bigint,
  slack bigint,
  -- The lane that a bucket is kept for until its next job fits (null: nobody's), what that needs, and since when it does.
  -- Whoever is not asked for a second after due has lost it.
  holder bigint,
  need bigint,
  asked bigint,
  primary key (class, id, v)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index list_due on sluice.list (class, due) where due is not null;
create index list_bucket on sluice.list (id) where id <> 0;
create index list_holder on sluice.list (id) where holder is not null;

-- One row per claim with unfinished jobs: makes a repeated claim adopt what the lost reply held, and tells a rescuer
-- what a lost worker had in hand.
create table sluice.claim (
  id uuid primary key,
  worker bigint not null,
  at bigint not null,
  lanes bigint[] not null,
  seqs bigint[] not null
) with (toast_tuple_target = 8160); -- To compress the 4 KB of 250 jobs takes longer than all else about the row.
create index claim_worker on sluice.claim (worker);

-- Gates hold back whole classes: jobs of these queues and tasks (patterns, * for any text; null: any) start only in these
-- hours of these days (ISO, 1 is Monday; null: every day) by the wall clock of the zone. Hours may pass midnight: then they
-- belong to the day on which they begin. Without hours: never (a pause).
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
  -- Null: until it is removed. A rule's gate holds while a worker that has the rule renews it.
  alive_until timestamptz,
  check ((zone is null) = (from_min is null) and (zone is null) = (to_min is null))
);

-- What claims leave out because they failed by its data, until an operator releases it.
create table sluice.parked (
  kind text not null check (kind in ('job', 'lane', 'bucket')),
  -- Of a lane or a bucket.
  id bigint,
  job uuid,
  -- What operators call it: the job's id, `limit:key`, `task in queue`.
  name text not null,
  error text not null,
  -- The SQLSTATE.
  code text,
  at timestamptz not null,
  primary key (kind, name)
);

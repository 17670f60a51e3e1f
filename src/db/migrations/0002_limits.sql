-- Definitions of limits, buckets and the ledger, takes outside of jobs, the limiter's clock, Redis's epoch.

-- Definitions of limits; the highest version is in force. Each array has one element per rule (limits/limit.ts): its
-- kind (rate, pace, window, quota, concurrency), one microsecond drains drain[i], one unit weighs weight[i], the bucket
-- holds capacity[i] units, the parts of a window last part_us[i] microseconds (of a pace: its units may be used so much
-- late), and grants matter for span[i] microseconds.
create table sluice.limit_def (
  name text not null,
  version integer not null,
  spec jsonb not null,
  kind text[] not null,
  drain bigint[] not null,
  weight bigint[] not null,
  capacity bigint[] not null,
  part_us bigint[] not null,
  span bigint[] not null,
  grant_us bigint not null,
  created_at timestamptz not null,
  -- How far, in microseconds, a grant of a quota counts beyond the ends of its period; null: no rule is a quota.
  margin bigint[],
  -- The starts of periods that claims use for quotas, in microseconds of the store's clock: a row for each rule
  -- (limits/definitions/calendar_periods.sql). Null: no rule is a quota, or they were not computed yet.
  periods bigint[],
  -- The label that is its key; the members of its pool. Both are in the spec, too.
  label text,
  members text[],
  -- The history: the source that put it in force, the user, and the reason.
  source text not null default 'code',
  by text,
  reason text,
  -- For the other jobs beside a share (`crm/`; spec.lends names the share): microseconds of idleness after which they
  -- may use the share. Null: any other limit.
  lend_us bigint,
  -- While processes have different definitions in their code, their rules hold together. So many of the rules are those
  -- of the newest code; null: all.
  own integer,
  -- The key that has numbers of its own by it; '': all other keys. The definitions of a limit share the versions, so a
  -- version names one, and those of a key only grow.
  key text not null default '',
  primary key (name, version)
);
create index limit_key on sluice.limit_def (name, key, version);
create index limit_concurrency on sluice.limit_def (name) where 'concurrency' = any (kind);
create index limit_pool on sluice.limit_def (name) where members is not null;
create index limit_lending on sluice.limit_def (name) where lend_us is not null;

-- The definitions that sources give to a limit: code (one for each definition that live processes have), found by the
-- fleet where the code wants that, stored by an operator, pinned by one; and what one of these becomes with the margin
-- that the fleet has measured.
-- limits/definitions/effective_definition.sql has what is in force.
create table sluice.limit_source (
  name text not null,
  -- The key for which an operator has defined numbers; '': all keys.
  key text not null default '',
  source text not null check (source in ('code', 'found', 'stored', 'pinned', 'measured')),
  -- As in limit_def; in an operator's definition only what the numbers decide: keys and everything else come from the
  -- code.
  spec jsonb not null,
  -- The arrays of limit_def by their names.
  columns jsonb not null,
  by text not null,
  reason text,
  at timestamptz not null,
  -- For code: a hash of the definition. Else empty.
  digest text not null default '',
  -- For code: when a process last had it, and since when processes record that without a gap of 15 s; for how long it
  -- counts after that (null: 15 s); since when it no longer does.
  seen_at timestamptz,
  steady_at timestamptz,
  keep interval,
  gone_at timestamptz,
  primary key (name, key, source, digest)
);

-- The latest measurements of each process that may call, for a limit; in microseconds (limits/samples.ts). A row that
-- is not written for a minute, or for ten if it is not sound, is deleted.
create table sluice.measured (
  name text not null,
  process uuid not null,
  host text not null,
  seen_at timestamptz not null,
  -- The age that nearly all of so many grants had at most when they were used; which part of the newest were too old.
  ages integer not null,
  age bigint not null,
  late real not null,
  -- The shortest and the longest of so many answers; false: requests were sent without being measured, or refused.
  answers bigint not null,
  least bigint not null,
  most bigint not null,
  sound boolean not null,
  primary key (name, process)
) with (fillfactor = 50);

-- Limits that grant nothing to waiting jobs for now: one key, or all of them (key '').
create table sluice.limit_pause (
  name text not null,
  key text not null,
  reason text not null,
  by text not null,
  created_at timestamptz not null,
  primary key (name, key)
);

-- The buckets: a limit, a share or a pool (key '*') of it, for one key. What a bucket has used is in the ledger.
create table sluice.bucket (
  id bigint primary key,
  name text not null,
  key text not null,
  -- limit_def.key of its definition: its key, if that has (or had) numbers of its own; else ''. Such a bucket stays.
  def_key text not null default '',
  -- Computing with its data fails: it has no room, and nothing is computed, until it is released from sluice.parked.
  parked boolean
);

-- The ledger is the state: the newest row of a bucket (by at, then n) has what the bucket has used, and what the row
-- granted. parts: for limits with windows, a row per rule: units granted in each of its parts, the newest first.
-- Appended under the bucket's advisory lock; no row is ever updated, so an old snapshot elsewhere costs nothing.
create table sluice.ledger (
  bucket bigint not null,
  n bigint not null,
  at bigint not null,
  debt bigint[] not null,
  parts integer[],
  -- For limits with quotas a row per rule, zeros if it is no quota: the start of the previous period, the start and end
  -- of the period that contains the row's time (microseconds), and the units that count in the previous, in this, and
  -- already in the next period.
  quota bigint[],
  version integer not null,
  units bigint not null,
  -- For units that were granted ahead of time: how many microseconds before `at` each may be used; null: none.
  earlier integer[],
  hold bigint not null default 0,
  -- Above 0, the vendor has refused requests: limits/ledger/refuse_buckets.sql.
  trial_us bigint not null default 0,
  claim uuid,
  -- Why the row holds the bucket: limits/ledger/hold_buckets.sql. `others`: its units are what others have used of the
  -- vendor's account (limits/ledger/charge_others.sql). `again`: they are charged once more
  -- (limits/ledger/charge_again.sql). `denied`: it has no units, and records that jobs of a share were denied
  -- (limits/room/record_denied_shares.sql).
  cause text,
  primary key (bucket, at, n)
);
create index ledger_at on sluice.ledger (at);
create index ledger_others on sluice.ledger (bucket, at) where cause = 'others';

-- The use of each key of a limit on each day: sums of ledger rows, which are deleted after a week. Written outside
-- of claims (limits/usage/sum_ledger.sql). granted: units that were granted, and used beyond grants; refunded: given
-- back.
create table sluice.usage (
  name text not null,
  key text not null,
  day date not null,
  granted numeric not null,
  refunded numeric not null,
  primary key (name, key, day)
) with (fillfactor = 70);
create index usage_day on sluice.usage (day);

-- The last ledger row of each bucket that sluice.usage counts.
create table sluice.summed (
  bucket bigint primary key,
  at bigint not null,
  n bigint not null
) with (fillfactor = 50);

-- Quotas that have reached a share of what they allow, the newest period of each (limits/usage/raise_budgets.sql).
-- rate: the quota as it was written. starts, ends: its period, and at: when the share was reached, in microseconds of
-- the store's clock.
create table sluice.budget (
  name text not null,
  key text not null,
  rate text not null,
  share numeric not null,
  starts bigint not null,
  ends bigint not null,
  at bigint not null,
  primary key (name, key, rate, share)
) with (fillfactor = 70);

-- Buckets of which the vendor refused requests, or failed, until it accepts one (takes/accept_buckets.sql).
-- Times are those of the limiter's clock, in microseconds.
create table sluice.refusal (
  bucket bigint primary key,
  -- The other buckets of the refused request, whose keys it shares with other requests.
  shared bigint[] not null,
  -- The first and the newest refusal, and how many in a row were answers to requests sent after the one before.
  since bigint not null,
  at bigint not null,
  n integer not null,
  -- The vendor's answer, for people.
  answer text not null,
  -- refused: the vendor's own limits; credential: it rejects the key's credential; down: it fails, or does not answer.
  cause text not null default 'refused',
  -- The host that answered; null: not known. An answer of another host ends nothing.
  host text
);

-- Failures of vendors in a row, until they hold a bucket, and after it (limits/ledger/count_failures.sql). A scope is
-- the buckets of a key, or all keys of some limits: takes/circuit.ts. who: the jobs, or keys, that failed, at most 8.
create table sluice.failure (
  scope bigint primary key,
  at bigint not null,
  n integer not null,
  who bigint[] not null
);
create index failure_at on sluice.failure (at);

-- Buckets with a new definition whose ledger is too long for a claim to rebuild their state:
-- claim/definitions/rebuild_next_bucket.sql.
create table sluice.renewal (
  bucket bigint primary key
);

-- Takers that wait for room in buckets, a row for each bucket, in the order of n. A taker that neither repeats its
-- request by alive_until nor is renewed is gone. Reads start at a time, so that they never read the rows of earlier
-- takers.
-- reserves: others leave its cost free in this bucket (takes/queue_taker.sql).
-- The row of a bucket with the nil UUID is no taker: it only stops grants ahead until alive_until, behind all others
-- (limits/takers/stop_grants_ahead.sql).
create table sluice.taker (
  id uuid,
  n bigint not null generated by default as identity,
  bucket bigint,
  cost bigint not null,
  alive_until bigint not null,
  reserves boolean not null default true,
  primary key (id, bucket)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index taker_line on sluice.taker (bucket, alive_until);
create index taker_alive on sluice.taker (alive_until);

-- Processes that hold leases; each renews alive_until now and then. 0: the process was given up.
create table sluice.holder (
  id uuid primary key,
  alive_until bigint not null
) with (fillfactor = 50);

-- The leases: one place of concurrency each, until it is released or its holder is given up.
create table sluice.lease (
  id uuid,
  bucket bigint,
  holder uuid not null,
  primary key (id, bucket)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index lease_holder on sluice.lease (holder, bucket);

-- One row: the identity of this store, and the limiter's clock. That clock is the store's, but runs evenly when the
-- store's clock steps: limits/clock/limiter_now_us.sql. Rewritten only when something happens.
create table sluice.epoch (
  one boolean primary key default true check (one),
  -- Counts up when the store turns out to lack what it had acknowledged (restored, failed over):
  -- limits/clock/check_epoch.sql.
  n bigint not null default 1,
  -- The server's identity as last seen (system identifier, timeline, id of this table; null: the server does not report
  -- it), and when the server started.
  identity text,
  server_at timestamptz,
  -- Since when, in the limiter's time, limits are closed; each stays so until its longest window has passed. Null:
  -- never.
  closed_us bigint,
  -- How far the limiter's clock is ahead of the store's, and the latest time that it is known to have shown.
  clock_offset_us bigint not null default 0,
  seen_us bigint not null default 0,
  -- The last step of the store's clock: its size, and the clock's time after it.
  stepped_us bigint,
  stepped_at timestamptz,
  -- False: tests move the store's clock on purpose, so its steps are time.
  watched boolean not null default true
);
insert into sluice.epoch default values;

-- Steps of the store's clock: they show which clock was used for a calendar at which time
-- (limits/clock/clock_offset_at.sql). One row for each step that was compensated: from this time of the limiter's clock
-- on, that clock is ahead of the store's by clock_offset_us, and no longer by before_us. Kept for as long as the ledger
-- has older rows.
create table sluice.step (
  n bigint generated always as identity primary key,
  at bigint not null,
  before_us bigint not null,
  clock_offset_us bigint not null
);

-- State of the limits that are shared in Redis (docs/redis.md). One row once a process was given a Redis.
create table sluice.shared (
  one boolean primary key default true check (one),
  -- The prefix of this database's keys: another database has another one.
  owner text not null,
  -- The epoch of the state in Redis, and the time from which this epoch is expected:
  -- limits/redis/replace_redis_epoch.sql.
  epoch text not null,
  at timestamptz not null,
  -- Number of databases that share the limits in that Redis, this one included.
  stores int not null default 1,
  -- Since when Redis has not answered some process, and the error; null: it answers.
  away_at timestamptz,
  away text
);

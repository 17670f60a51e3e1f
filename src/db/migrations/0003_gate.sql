-- Who comes first: ageing, pauses, and hours in which jobs may start.

-- Since when a job waits, where that is not its creation: it was scheduled, and became due then.
alter table sluice.job add column since timestamptz;

-- What a waiting lane is seated under (rank_v1): the smaller comes first among the lanes of a fair key.
alter table sluice.lane add column rank integer not null default 0;
update sluice.lane set rank = -priority;

-- The rank, but for priority, of the last job seen: nearly that of the lane's next head.
alter type sluice.move add attribute head integer;

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
  check ((zone is null) = (from_min is null) and (zone is null) = (to_min is null))
);

-- Limits that grant nothing to waiting jobs for now: one key, or all of them (key '').
create table sluice.limit_pause (
  name text not null,
  key text not null,
  reason text not null,
  by text not null,
  created_at timestamptz not null,
  primary key (name, key)
);

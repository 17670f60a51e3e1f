-- Schedules: what is due when, and what became of each instant.

-- next_at: the first instant that nobody has dealt with. Moved on in the statement that sends the jobs (schedule/fire.sql).
-- timing: whose text is the same has the same instants. last_job is looked up to see whether it is unfinished.
create table sluice.schedule (
  name text primary key,
  task text not null,
  timing text not null,
  spec jsonb not null,
  next_at timestamptz not null,
  last_at timestamptz,
  last_job uuid,
  paused_at timestamptz,
  defined_at timestamptz not null,
  error text
) with (fillfactor = 50);

-- Instants from at to until were sent, skipped (the job before was unfinished) or missed (nobody could send them in
-- time). The key is a second lock on the promise that no instant is sent twice.
create table sluice.firing (
  schedule text not null,
  at timestamptz not null,
  until timestamptz not null,
  outcome text not null,
  job uuid,
  recorded_at timestamptz not null,
  primary key (schedule, at)
);

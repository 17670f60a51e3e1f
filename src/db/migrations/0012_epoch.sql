-- Deadlines: which jobs of a lane must begin by when. `claim` is left out, so that claims stay HOT.
create index job_deadline on sluice.job (lane, expires_at) where expires_at is not null and due_at is null;

-- One row: which store this is, and the limiter's clock. The clock is that of the store, but goes on evenly when that one
-- steps: limits/clock.sql. Rewritten when something happens, not in passing.
create table sluice.epoch (
  one boolean primary key default true check (one),
  -- Counts up when the store turns out to lack what it had acknowledged (restored, failed over): limits/look.sql.
  n bigint not null default 1,
  -- The server's identity as last seen (system identifier, timeline; null: it does not tell), and since when it has run.
  identity text,
  server_at timestamptz,
  -- Since when, in the limiter's time, no limit has room, until it has let pass what it looks back on; null: never.
  closed_us bigint,
  -- How far the limiter's clock is ahead of the store's, and what it has shown at least.
  ahead_us bigint not null default 0,
  seen_us bigint not null default 0,
  -- The last step of the store's clock: by how much, and what it showed after it.
  stepped_us bigint,
  stepped_at timestamptz,
  -- False: the store's clock is moved on purpose, by tests, so its steps are time.
  watched boolean not null default true
);
insert into sluice.epoch default values;

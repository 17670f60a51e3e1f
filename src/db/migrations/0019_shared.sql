-- Limits whose state others share, in Redis (docs/redis.md). One row once a process was given a Redis.
create table sluice.shared (
  one boolean primary key default true check (one),
  -- Whose keys these are: another database has others.
  owner text not null,
  -- Of the state in Redis, and since when it is to be that one: limits/succeed.sql.
  epoch text not null,
  at timestamptz not null,
  -- Since when Redis has not answered somebody, and what it was; null: it answers.
  away_at timestamptz,
  away text
);

-- These have other parameters or answers now.
drop function if exists sluice.claim_v1(uuid, bigint, text[], text[], integer, bigint, boolean, bigint, boolean);
drop function if exists sluice.acquire_v1(uuid, uuid, bigint, text, bigint, bigint, uuid, uuid, bigint, bigint);
drop function if exists sluice.further_v1(uuid, uuid, uuid, text[], uuid, bigint, bigint[], bigint[]);
drop function if exists sluice.ended_v1(uuid[], uuid[], boolean[]);

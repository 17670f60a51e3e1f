-- What is agreed for the whole fleet: how long finished jobs are kept (`retention`), and when old ones are dropped (`prune`).
create table sluice.setting (
  name text primary key,
  value jsonb not null,
  at timestamptz not null
);

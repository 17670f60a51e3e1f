-- What attempts have really used of a limit, for each route: task, limit, and the value of a field ('': of none).
create table sluice.learned (
  task text not null,
  lim text not null,
  value text not null,
  -- Thousandths of the declared cost, the newest first; 128 at most.
  ratios smallint[] not null,
  seen_at timestamptz not null,
  primary key (task, lim, value)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

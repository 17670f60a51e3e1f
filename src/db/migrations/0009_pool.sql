-- Keys that only dispatch knows: labels of workers, and pools, of which one member is taken.

-- The buckets in which the running attempt was charged, one for each of takes; null: they are the same. takes has
-- `ip@host` where the key is the worker's label host, and `sender*` where any of a pool will do; holds has what that was.
alter table sluice.job add column holds text[];

-- Those of its jobs' limits that go by labels, as in takes (`ip@host`), in order; null: none. They belong to what a class
-- is: a worker whose label has no room leaves out the class, not the lanes.
alter table sluice.class add column labels text[];
create index class_labels on sluice.class (id) where labels is not null;
alter table sluice.worker add column labels jsonb not null default '{}';
-- Classes that it left out because a label of its own had no room.
alter table sluice.idle add column barred bigint[];

-- The label that is its key; the members of its pool. Both are in the spec too.
alter table sluice.limit_def add column label text, add column members text[];
create index limit_pool on sluice.limit_def (name) where members is not null;

-- Costs: what a job takes of each of its limits, where that is not 1.

-- One element for each of takes, in order, and one more: what the job adds to the turn of its fair key. Null: all are 1.
alter table sluice.job add column costs integer[];
alter table sluice.done add column costs integer[];
alter table sluice.failed add column costs integer[];

-- What the attempt under way has settled: its claim, then the names of limits.
alter table sluice.job add column settled text[];

-- Costs of many jobs may add up to more than 32 bits hold.
alter table sluice.ledger alter column units type bigint;

-- Its jobs have costs; those of other lanes are taken without looking at each.
alter table sluice.lane add column costed boolean not null default false;

-- Units of the jobs taken, for each of the lane's buckets; null: one for each job.
alter type sluice.move add attribute costs bigint[];

-- The lane that a bucket is kept for until its next job fits (null: nobody's), what that needs, and since when it does.
-- Whoever is not asked for a second after due has lost it.
alter table sluice.list add column holder bigint, add column need bigint, add column asked bigint;
create index list_holder on sluice.list (id) where holder is not null;

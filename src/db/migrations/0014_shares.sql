-- Shares: part of a limit that is kept for some jobs (limits/reserve.ts).

-- Of what a share leaves to others (`crm/`; spec.lends names the share): idle for so many microseconds its part is lent. Null:
-- any other limit.
alter table sluice.limit_def add column lend_us bigint;
create index limit_lending on sluice.limit_def (name) where lend_us is not null;

-- Steps of the store's clock: by which clock a calendar was read when (limits/advance.sql).

-- One row for each that was made up for: from this time of the limiter's clock on, that is ahead of the store's by ahead_us, and
-- not by before_us any more. Kept for as long as the ledger has older rows.
create table sluice.step (
  n bigint generated always as identity primary key,
  at bigint not null,
  before_us bigint not null,
  ahead_us bigint not null
);
insert into sluice.step (at, before_us, ahead_us)
select (extract(epoch from stepped_at) * 1000000)::bigint + ahead_us, ahead_us + stepped_us, ahead_us from sluice.epoch where stepped_at is not null;

-- What has arrived for a class: its lanes, and of each the first seq and how many jobs (fresh.sql).
create type sluice.fresh as (lanes bigint[], bounds bigint[], counts bigint[], future boolean);
-- It is told what has arrived now.
drop function if exists sluice.absorb_v1(bigint);

-- What a bucket allows, as room_v1 says it: a claim charges what it has decided by.
create type sluice.room as (
  ord integer, bucket bigint, n bigint, now_at bigint, debt bigint[], slots integer[], quota bigint[], version integer, drain bigint[],
  weight bigint[], slot bigint[], margin bigint[], hold bigint, avail bigint, next bigint, period bigint, slack bigint, stale boolean,
  units bigint, places bigint, most bigint, life bigint, wall bigint);
drop function if exists sluice.survey_v1(bigint[], bigint[], bigint[], bigint[], bigint);
drop function if exists sluice.charge_v1(uuid, bigint, bigint[], bigint[], integer[], boolean);
drop function if exists sluice.mark_v1(uuid, bigint, bigint, sluice.lane[], bigint[], integer[], integer[], bigint[], bigint[], bigint[], bigint[],
  bigint[], bigint[], boolean[], integer[], jsonb, bigint[]);

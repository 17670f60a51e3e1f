-- Reads the first 20 grants of a bucket in a window of time, each with its jobs where they are known.
-- $1: the bucket
-- $2, $3: the first and the last microsecond, in the limiter's time; the units of a grant ahead of time
-- (engine.grant_ahead) may be used before its own
select l.claim, l.at, l.units, (
  select json_agg(j.id) from (
    select id from sluice.job where claim = l.claim
    union all select id from sluice.done where claim = l.claim and finished_at >= l.earliest
    union all select id from sluice.failed where claim = l.claim and finished_at >= l.earliest
    limit 20) j) as jobs
-- Jobs have the store's time: `earliest` is the earliest that its clock can have shown at the grant, given its steps.
from (select k.*, to_timestamp((k.at - e.most) / 1e6) as earliest
      from (select greatest((select clock_offset_us from sluice.epoch), max(s.clock_offset_us),
                            max(s.before_us)) as most
            from sluice.step s) e
      cross join sluice.ledger k where k.bucket = $1 and k.at >= $2
      and k.at - coalesce((select max(e) from unnest(k.earlier) e), 0) <= $3 and k.at <= $3 + engine.most_ahead_us()
      and k.claim is not null
      and (k.units > 0 or $2 = $3) order by k.at, k.n limit 20) l
order by l.at, l.n

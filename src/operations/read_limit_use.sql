-- Reads how many units of each bucket were granted within a window that ends now, without buckets of which none were.
-- $1: names of limits; $2: the window of each, in microseconds
select b.name, b.key, sum(l.units)::bigint as used
from unnest($1::text[], $2::bigint[]) u (name, window_us)
cross join (select sluice.now_us() + e.ahead_us as us from sluice.epoch e) at
join sluice.bucket b on b.name = u.name
join sluice.ledger l on l.bucket = b.id and l.at > at.us - u.window_us
group by b.name, b.key having sum(l.units) > 0 order by used desc limit 100

-- Stops grants ahead of time of these buckets for 30 s, because other programs take from them in Redis, which then
-- grants nothing ahead.
-- $1: ids of the buckets
select engine.stop_grants_ahead($1, engine.limiter_now_us(null) + 30000000)
from (select engine.lock_buckets($1)) locked

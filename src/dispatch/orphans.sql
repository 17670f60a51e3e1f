-- Claims that the store holds for a worker, made more than 5 s ago: one that the worker does not know of is the fruit of
-- a request that reached the store late, and it adopts that claim's jobs (adopt_v1).
-- $1 worker
select id from sluice.claim where worker = $1 and at < sluice.limiter_us() - 5000000

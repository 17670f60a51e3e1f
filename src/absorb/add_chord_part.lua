-- Adds the result of a member of a chord, as workers of Celery do. KEYS: the sorted set of results, the number of members, what is to
-- be added to it, and the key that a group has which contains groups. ARGV: the result; its place; how many s everything is kept.
-- Returns the last key, so that the reply names its call, 1 if it is the last one (else 0), 1 if the group contains groups, and then all
-- results in order.
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
for i = 1, 3 do redis.call('EXPIRE', KEYS[i], ARGV[3]) end
local size = redis.call('GET', KEYS[2])
if not size then return { KEYS[4], 0, 0, {} } end
local wanted = tonumber(size) + tonumber(redis.call('GET', KEYS[3]) or 0)
if redis.call('ZCARD', KEYS[1]) ~= wanted then return { KEYS[4], 0, 0, {} } end
return { KEYS[4], 1, redis.call('EXISTS', KEYS[4]), redis.call('ZRANGE', KEYS[1], 0, -1) }

-- Keeps the result of a task, and sends it to those that wait, unless a success is there: a message that is delivered again after its
-- success may fail. Workers of Celery do the same. KEYS: the key of the result, and their channel. ARGV: how many s it is kept; the
-- result. Returns the key, so that the reply names its call.
local key = KEYS[1]
local isRead, found = pcall(cjson.decode, redis.pcall('GET', key))
if isRead and type(found) == 'table' and found.status == 'SUCCESS' then return { key } end
redis.call('SETEX', key, ARGV[1], ARGV[2])
redis.call('PUBLISH', key, ARGV[2])
return { key }

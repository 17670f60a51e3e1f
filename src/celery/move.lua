-- Ends that a message is held under a tag, unless another worker has it by now. KEYS: the hash and the index of held messages, then
-- the lists to whose front it goes. ARGV: its tag; its text for the lists; if it is to be held on: its new tag, and by how many ms
-- from now its time is noted. Returns its tag, so that the reply names its call, and 1, or 0 if it was held no more.
local held, index, tag = KEYS[1], KEYS[2], ARGV[1]
local text = redis.call('HGET', held, tag)
redis.call('ZREM', index, tag)
if not text then return { tag, 0 } end
redis.call('HDEL', held, tag)
for i = 3, #KEYS do redis.call('RPUSH', KEYS[i], ARGV[2]) end
if ARGV[3] then
  local time = redis.call('TIME')
  redis.call('HSET', held, ARGV[3], text)
  redis.call('ZADD', index, string.format('%.6f', time[1] + time[2] / 1000000 + ARGV[4] / 1000), ARGV[3])
end
return { tag, 1 }

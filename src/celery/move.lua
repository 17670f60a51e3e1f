-- Ends that a message is held under a tag, unless another worker has it by now. KEYS: the hash and the index of held messages, then
-- the lists to whose front it goes. ARGV: its tag; its text for the lists; the time that was noted for it, if it was due: if its worker
-- has renewed it meanwhile, it stays. Returns its tag, so that the reply names its call, and 1, or 0 if nothing was done.
local held, index, tag = KEYS[1], KEYS[2], ARGV[1]
if ARGV[3] and redis.call('ZSCORE', index, tag) ~= ARGV[3] then return { tag, 0 } end
-- Fails before anything is changed if one of them is no list.
for i = 3, #KEYS do redis.call('LLEN', KEYS[i]) end
redis.call('ZREM', index, tag)
if redis.call('HDEL', held, tag) == 0 then return { tag, 0 } end
for i = 3, #KEYS do redis.call('RPUSH', KEYS[i], ARGV[2]) end
return { tag, 1 }

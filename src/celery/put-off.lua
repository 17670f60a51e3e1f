-- Has a message that is held under a tag come again later, or at once, and ends that it is held, in one step. KEYS: the hash and the
-- index of held messages, the sorted set of those that wait, and its list. ARGV: its tag; for how many ms it waits, 0: not at all; its
-- text then; 1 if it comes again even if nothing is held under the tag. Returns its tag, so that the reply names its call, and 1, or 0
-- if it was held no more, so that nothing was done.
local held, index, waiting, list = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local tag, text = ARGV[1], ARGV[3]
-- Reads both: if one of them is of another type, the script fails here, before it has changed anything.
local isHeld = redis.call('HEXISTS', held, tag) == 1
redis.call('ZSCORE', index, tag)
if ARGV[4] ~= '1' and not isHeld then return { tag, 0 } end
if tonumber(ARGV[2]) <= 0 then
  redis.call('LPUSH', list, text)
else
  local time = redis.call('TIME')
  -- `fetch.lua` reads the list, and the text, a line each.
  redis.call('ZADD', waiting, string.format('%.6f', time[1] + time[2] / 1000000 + ARGV[2] / 1000), list .. '\n' .. text)
end
redis.call('HDEL', held, tag)
redis.call('ZREM', index, tag)
return { tag, 1 }

-- Takes messages from lists and notes them as held, in one step, so that none is lost in between. KEYS: the hash and the index of
-- held messages, then the lists, in order. ARGV: what the new tags begin with; how many are wanted; after how many ms a held message
-- is due; what to add to its time, in ms, so that it is due sooner; then the queue of each list, as JSON. Returns what the tags
-- begin with, so that the reply names its call; what it took, as {tag, place of the list, text}; and what is due, as {tag, text, noted time}.
local held, index = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local taken = {}
for i = 3, #KEYS do
  while #taken < tonumber(ARGV[2]) do
    local text = redis.call('RPOP', KEYS[i])
    if not text then break end
    local tag = ARGV[1] .. #taken
    redis.call('HSET', held, tag, '[' .. text .. ', "", ' .. ARGV[i + 2] .. ']')
    redis.call('ZADD', index, string.format('%.6f', now + ARGV[4] / 1000), tag)
    taken[#taken + 1] = { tag, i - 3, text }
  end
end
local due = {}
local before = string.format('%.6f', now - ARGV[3] / 1000)
for _, tag in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', before, 'LIMIT', 0, 100)) do
  due[#due + 1] = { tag, redis.call('HGET', held, tag) or '', redis.call('ZSCORE', index, tag) }
end
return { ARGV[1], taken, due }

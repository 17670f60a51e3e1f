-- Takes messages from lists and notes them as held, in one step, so that none is lost in between; before that, those that have waited
-- for their time go to their lists. KEYS: the hash and the index of held messages, the sorted set of those that wait, then the lists, in
-- order. ARGV: what the new tags begin with; how many are wanted; after how many ms a held message is due; what to add to its time, in
-- ms, so that it is due sooner; then the queue of each list, as JSON. Returns what the tags begin with, so that the reply names its
-- call; what it took, as {tag, place of the list, text}; what is due, as {tag, text, noted time}; and in how many ms the next waiting one
-- is due, -1: none waits; and the lists that Redis refuses, because they are none, for example, as {place, error}.
local held, index, waiting = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local ready = redis.call('ZRANGEBYSCORE', waiting, '-inf', string.format('%.6f', now), 'LIMIT', 0, 1000)
for _, member in ipairs(ready) do
  local list, text = string.match(member, '^(.*)\n(.*)$')
  -- To the end, where new ones go: if they came to the front, and faster than workers take them, others would never be reached. If Redis
  -- refuses the list, because it is none or the memory is full, its messages wait on, behind those of other lists.
  if list and type(redis.pcall('LPUSH', list, text)) == 'number' then
    redis.call('ZREM', waiting, member)
  else
    redis.pcall('ZADD', waiting, string.format('%.6f', now + 1), member)
  end
end
local taken, refused = {}, {}
for i = 4, #KEYS do
  while #taken < tonumber(ARGV[2]) do
    local text = redis.pcall('LINDEX', KEYS[i], -1)
    if type(text) == 'table' then refused[#refused + 1] = { i - 4, text.err } end
    if type(text) ~= 'string' then break end
    local tag = ARGV[1] .. #taken
    -- Redis keeps what a script did before it failed. So a message is noted before it is taken off, and its time before that. The first
    -- write changes nothing, and needs no memory: after it Redis allows the others though its memory is full.
    redis.call('HDEL', held, tag)
    redis.call('ZADD', index, string.format('%.6f', now + ARGV[4] / 1000), tag)
    redis.call('HSET', held, tag, '[' .. text .. ', "", ' .. ARGV[i + 1] .. ']')
    redis.call('RPOP', KEYS[i])
    taken[#taken + 1] = { tag, i - 4, text }
  end
end
local due = {}
local before = string.format('%.6f', now - ARGV[3] / 1000)
for _, tag in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', before, 'LIMIT', 0, 100)) do
  due[#due + 1] = { tag, redis.call('HGET', held, tag) or '', redis.call('ZSCORE', index, tag) }
end
local soonest = redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')[2]
local next = soonest and string.format('%.0f', math.max(0, (soonest - now) * 1000)) or '-1'
return { ARGV[1], taken, due, next, refused }

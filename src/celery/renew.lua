-- Shows that the worker that holds messages is there. KEYS: the hash and the index of held messages. ARGV: a name for the call; by how
-- many ms from now their time is noted; their tags. Returns the name, and the tags under which nothing is held any more.
local time = redis.call('TIME')
local at = string.format('%.6f', time[1] + time[2] / 1000000 + ARGV[2] / 1000)
local lost = {}
for i = 3, #ARGV do
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then
    redis.call('ZADD', KEYS[2], at, ARGV[i])
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return { ARGV[1], lost }

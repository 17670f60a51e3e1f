-- A token bucket of one key. KEYS[1]: its key; ARGV: its capacity, and the tokens that come back each second. Returns after how many
-- seconds a token is there, as text; 0: one was taken.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local capacity, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local state = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = tonumber(state[1]) or capacity
local at = tonumber(state[2]) or now
level = math.min(capacity, level + math.max(now - at, 0) * rate / 1000000)
if level >= 1 then
  redis.call('HSET', KEYS[1], 'level', level - 1, 'at', now)
  redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / rate * 1000) + 1000)
  return '0'
end
return tostring((1 - level) / rate)

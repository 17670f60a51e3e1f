-- Books the times at which denied messages may come back, one after the other, for all workers. KEYS: the key of the
-- bucket's bookings. ARGV: how many; the time between two of them, from now to the first, and the most from now, in us.
-- Returns the key, so that the reply names its call, after how many us the first may come back, and for how many messages
-- times are booked: the first ones, whose times are not beyond the most.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local n, apart, from, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local first = math.max(now + from, tonumber(redis.call('GET', KEYS[1]) or 0))
local some = math.max(0, math.min(n, math.floor((now + most - first) / apart)))
if some == 0 then return { KEYS[1], first - now, 0 } end
local last = first + some * apart
redis.call('SET', KEYS[1], string.format('%.0f', last), 'PX', string.format('%.0f', math.ceil((last - now) / 1000) + 1000))
return { KEYS[1], first - now, some }

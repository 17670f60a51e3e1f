-- Books the times at which denied messages may come back, one after the other, for all workers. KEYS: the key of the
-- bucket's bookings. ARGV: how many; the time between two of them, from now to the first, and the most from now, in us.
-- Returns after how many us the first may come back; nothing is booked, and -1 returned, if that would be more than the
-- most.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local n, apart, from, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local first = math.max(now + from, tonumber(redis.call('GET', KEYS[1]) or 0))
local last = first + n * apart
if last - now > most then return -1 end
redis.call('SET', KEYS[1], string.format('%.0f', last), 'PX', string.format('%.0f', math.ceil((last - now) / 1000) + 1000))
return first - now

-- Publishes the definition of a limit, unless a newer one is in force. KEYS: its key. ARGV[1]: the definition as JSON. ARGV[2]: 1: replaces
-- whatever is in force, because an epoch begins, and the store knows best. Returns the version in force then.
local version = cjson.decode(ARGV[1]).version
-- What is no definition, such as a value of another program, is replaced, too.
local is_read, stands = pcall(function() return cjson.decode(redis.call('GET', KEYS[1])).version end)
local standing = is_read and ARGV[2] ~= '1' and tonumber(stands)
if standing and standing > version then return standing end
redis.call('SET', KEYS[1], ARGV[1])
return version

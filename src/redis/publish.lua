-- Publishes the definition of a limit, unless a newer one is in force. KEYS: its key. ARGV[1]: the definition as JSON. ARGV[2]: 1: replaces
-- whatever is in force, because an epoch begins, and the store knows best. Returns the version in force then.
local stands = redis.call('GET', KEYS[1])
local version = cjson.decode(ARGV[1]).version
local standing = ARGV[2] ~= '1' and stands and cjson.decode(stands).version
if standing and standing > version then return standing end
redis.call('SET', KEYS[1], ARGV[1])
return version

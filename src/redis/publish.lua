-- Publishes the definition of a limit, unless a newer one stands. KEYS: its key. ARGV[1]: the definition as JSON. ARGV[2]: 1: replaces
-- whatever stands, because an epoch begins, and the store knows best. Returns the version that stands then.
local stands = redis.call('GET', KEYS[1])
local version = cjson.decode(ARGV[1]).version
local standing = ARGV[2] ~= '1' and stands and cjson.decode(stands).version
if standing and standing > version then return standing end
redis.call('SET', KEYS[1], ARGV[1])
return version

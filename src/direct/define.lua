-- Puts the definition of a limit in force for workers without a store. KEYS: its key. ARGV[1]: the definition as JSON, without a version;
-- unset: none, only reads. ARGV[2]: 1: replaces another one in force. Returns the key, so that the reply names its call, and the
-- definition in force then, with its version; nil: none.
local stands = redis.call('GET', KEYS[1])
if not ARGV[1] then return { KEYS[1], stands } end
local function with(version)
  return '{"version":' .. string.format('%.0f', version) .. ',' .. string.sub(ARGV[1], 2)
end
local version = stands and cjson.decode(stands).version or 0
if stands and (stands == with(version) or ARGV[2] ~= '1') then return { KEYS[1], stands } end
local time = redis.call('TIME')
-- Greater than any before, also if the one before was lost.
local text = with(math.max(version + 1, tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)))
redis.call('SET', KEYS[1], text)
return { KEYS[1], text }

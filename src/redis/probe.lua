-- Whether the scripts can be carried out here; writes nothing. Answers 1 for: the clock can be read, numbers can be packed, the
-- history of writes has a name; else 0.
local time = redis.pcall('TIME')
local packs = cmsgpack and cjson and cmsgpack.unpack(cmsgpack.pack(NEVER)) == NEVER
return { time[1] and 1 or 0, packs and 1 or 0, history() ~= '' and 1 or 0 }

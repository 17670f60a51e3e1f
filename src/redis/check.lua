-- Checks whether the scripts can run here; writes nothing. Returns three flags, 1 or 0: the clock can be read; numbers can be packed;
-- the history of writes has a name.
local time = redis.pcall('TIME')
local packs = struct and cmsgpack and cjson and cmsgpack.unpack(cmsgpack.pack(NEVER)) == NEVER
return { time[1] and 1 or 0, packs and 1 or 0, history() ~= '' and 1 or 0 }

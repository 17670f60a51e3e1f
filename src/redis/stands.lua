-- Returns which epoch stands; writes nothing. KEYS: key of the epoch. ARGV[1]: the call as JSON: id. Returns 'stands', the id, what the
-- clock shows, 1 if the state is whole (else 0), and the epoch's id and owner ('': none).
local call = cjson.decode(ARGV[1])
local id, owner = unpack(redis.call('HMGET', KEYS[1], 'id', 'owner'))
local _, shown = clock()
return { 'stands', call.id, shown, whole(KEYS[1], {}) and 1 or 0, id or '', owner or '' }

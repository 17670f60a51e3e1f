-- Returns which epoch is in force; writes nothing. KEYS: key of the epoch. ARGV[1]: the call as JSON:
-- id: of the call.
-- owner: whose part in the epoch is returned; unset: nobody's.
-- Returns 'stands', the id, what the clock shows, 1 if the state is whole (else 0), the epoch's id and owner ('': none), the id under which
-- the owner takes part in it ('': none), and the number of databases that share the limits.
local call = cjson.decode(ARGV[1])
local id, owner, mine, stores = fields_of(KEYS[1], 'id', 'owner', 'o:' .. (call.owner or ''), 'stores')
local _, shown = clock()
return { 'stands', call.id, shown, whole(KEYS[1], {}) and 1 or 0, id or '', owner or '', mine or '', tonumber(stores or 1) }

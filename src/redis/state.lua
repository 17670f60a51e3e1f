-- Buckets in Redis: one hash for each. Its fields: `s`: the bucket's state. `e<n>`: its nth grant (at, units, units given back, version,
-- id, places held, number of parts: if it was made for several times, its further parts follow it and hold no places; AGAIN: the units
-- of a request that was charged once more). `g<id>`: the number of the grant with this id. `p<id>`: places held (and version) of a grant
-- that is not remembered otherwise.
-- `l`: places that are leased: for each grant their number, and when they are free again unless the lease is renewed.
-- `r`: the last hold that a vendor's refusal set: until when, until when the bucket would be held without, epoch and version then (settle.lua).
-- `o`: until then nothing is granted ahead, because other programs have called (reserve.lua). `f`: when units or places were last given
-- back (settle.lua). `j<owner>`: the epoch in which this database has added what it granted before (join.lua).
-- State and grants share a key, so that they can only be lost together.
-- Numbers are packed, never turned into text by Lua, which keeps 14 digits.

-- Number of grants of a bucket that are remembered (some more, until they are forgotten together), none for much longer than `keep`.
-- Nothing is given back for older ones (no credit). Under a changed definition of which the old one knows nothing (rebuild.lua),
-- nothing is granted until older ones are beyond what the rules look back on. An expired key leaves no trace: if a definition is changed
-- to one that looks back longer, the caller has to supply what the bucket forgot, or hold the bucket.
local GRANTS = 1000
local SOME = 50
local NO_GRANTS = {}
local AGAIN = 0
-- The byte before a number in what is packed (state below).
local DOUBLE = 203
-- Time for which a reply is repeated; a command that arrives after its caller has given up is not carried out at all.
local ANSWER_MS = 60000

-- Reads a call. A bucket with the definition of an earlier one has the number of that one: most of the text is definitions.
local function call_of(text)
  local call = cjson.decode(text)
  for i, definition in ipairs(call.buckets) do
    if type(definition) == 'number' then call.buckets[i] = call.buckets[definition] end
  end
  return call
end

-- Reads Redis's clock once. Returns the limits' time, which is no later than the caller's monotonic clock allows (cap), and what the
-- clock shows.
local function clock(cap)
  local time = redis.call('TIME')
  local shown = tonumber(time[1]) * 1000000 + tonumber(time[2])
  return math.min(shown, cap or shown), shown
end

-- Returns the reply that was given to this id before; or 'late', if the caller has given up by now (a network may hold a command back and
-- deliver it when it heals), or one of the clocks has stepped.
local function answered(key, call, now, shown)
  local answer = redis.call('GET', key)
  if answer then return cmsgpack.unpack(answer) end
  return call['until'] and shown > call['until'] and { 'late', call.id, now, shown } or nil
end

local function answer(key, reply)
  redis.call('SET', key, cmsgpack.pack(reply), 'PX', ANSWER_MS)
  return reply
end

-- Returns the grants from number `first` to `last` (unset: the newest), in order.
local function grants(bucket, first, last)
  local fields, entries = {}, {}
  for n = first, last or bucket.n do fields[#fields + 1] = string.format('e%d', n) end
  if #fields == 0 then return entries end
  for i, entry in ipairs(redis.call('HMGET', bucket.key, unpack(fields))) do entries[i] = cmsgpack.unpack(entry) end
  return entries
end

-- Returns the grant with this id, and its number; nil: it is not remembered.
local function grant_of(bucket, id)
  local n = redis.call('HGET', bucket.key, 'g' .. id)
  if not n then return nil end
  return cmsgpack.unpack(redis.call('HGET', bucket.key, 'e' .. n)), tonumber(n)
end

-- Returns the parts of a grant, in order, by its first one.
local function parts_of(bucket, entry, n)
  return grants(bucket, n, n + (entry[7] or 1) - 1)
end

-- Returns a grant as cmsgpack packs the list of its fields, but with numbers as doubles, as in states.
local newest_id, packed_id
local function packed_grant(at, units, version, id, places, parts)
  if id ~= newest_id then newest_id, packed_id = id, cmsgpack.pack(id) end
  return struct.pack('>BBdBdBBdc0BdBd', 151, DOUBLE, at, DOUBLE, units, 0, DOUBLE, version, packed_id, DOUBLE, places, DOUBLE, parts)
end

local function write_grant(bucket, n, entry)
  redis.call('HSET', bucket.key, string.format('e%d', n), cmsgpack.pack(entry))
end

-- Writes the grants that `remember` has left for `save`: whoever reads grants again before that calls it.
local function flush(bucket)
  if bucket.fresh then redis.call('HSET', bucket.key, unpack(bucket.fresh)) end
  bucket.fresh = nil
end

-- Forgets the oldest grants, several at a time: those beyond GRANTS, and those older than `keep`; never the newest.
local function forget(bucket)
  local last = bucket.first - 1
  if bucket.n - last >= GRANTS + SOME then last = bucket.n - GRANTS end
  flush(bucket)
  local fields = {}
  for _, entry in ipairs(grants(bucket, bucket.first, math.min(bucket.first + SOME, bucket.n))) do
    bucket.oldest = entry[1]
    if bucket.first == bucket.n or (bucket.first > last and entry[1] >= bucket.at - bucket.keep) then break end
    fields[#fields + 1], fields[#fields + 2] = string.format('e%d', bucket.first), 'g' .. entry[5]
    -- A running job may run for long; there are no more of them than there are places.
    if entry[6] > 0 then redis.call('HSET', bucket.key, 'p' .. entry[5], cmsgpack.pack({ entry[6], entry[4] })) end
    bucket.first, bucket.lost = bucket.first + 1, math.max(bucket.lost, entry[1])
  end
  if #fields > 0 then redis.call('HDEL', bucket.key, unpack(fields)) end
end

-- Remembers a grant, made no later than the bucket's own time. id '': use beyond a grant, which cannot be given back; or a further part
-- of the last grant. parts: number of parts of the grant, or AGAIN. It is written by `save`, in one command with the state.
local function remember(bucket, at, id, units, places, parts)
  local n, fresh = bucket.n + 1, bucket.fresh
  local name = string.format('%d', n)
  bucket.n = n
  if n == bucket.first then bucket.oldest = at end
  local entry = packed_grant(at, units, bucket.version, id, places, parts or 1)
  if not fresh then
    bucket.fresh = id == '' and { 'e' .. name, entry } or { 'e' .. name, entry, 'g' .. id, name }
  else
    fresh[#fresh + 1], fresh[#fresh + 2] = 'e' .. name, entry
    if id ~= '' then fresh[#fresh + 1], fresh[#fresh + 2] = 'g' .. id, name end
  end
  if n - bucket.first >= GRANTS + SOME - 1 or bucket.oldest < bucket.at - bucket.keep * 1.1 then forget(bucket) end
end

-- Returns the leases of a bucket, by grant: places, and when they end.
local function leases_of(bucket)
  if not bucket.leases then
    local packed = bucket.leased > 0 and redis.call('HGET', bucket.key, 'l')
    bucket.leases = packed and cmsgpack.unpack(packed) or {}
  end
  return bucket.leases
end

-- Leases so many places to a grant (0: none any more) until a time, in place of those that it had.
local function lease(bucket, id, places, ends)
  local all = leases_of(bucket)
  local more = places - (all[id] and all[id][1] or 0)
  bucket.running, bucket.leased = math.max(0, bucket.running + more), bucket.leased + more
  if places > 0 then
    bucket.lapses, bucket.leased_until = math.min(bucket.lapses, ends), math.max(bucket.leased_until, ends)
  end
  all[id] = places > 0 and { places, ends } or nil
end

-- Frees the places of leases that have ended.
local function lapse(bucket, now)
  if bucket.leased == 0 or now < bucket.lapses then return end
  bucket.lapses = NEVER
  for id, one in pairs(leases_of(bucket)) do
    if one[2] <= now then lease(bucket, id, 0) else bucket.lapses = math.min(bucket.lapses, one[2]) end
  end
end

-- Returns until when anything of the bucket matters; nil: a job runs, and when it ends is not known.
local function matters_until(bucket)
  if bucket.running > bucket.leased then return nil end
  local last = math.max(bucket.at + bucket.keep, bucket.hold, bucket.leased > 0 and bucket.leased_until or 0)
  local rules = bucket.rules
  for i = 1, #rules do
    local rule, spent = rules[i], bucket.spent[i]
    if rule.slot > 0 then
      last = math.max(last, bucket.at + (PARTS + 1) * rule.slot)
    elseif rule.periods then
      -- The next period may be three times as long as this one (a short hour, a long day), not more.
      last = math.max(last, spent[3] + rule.margin + (spent[6] > 0 and 3 * (spent[3] - spent[2]) or 0))
    elseif is_flow(rule) then
      last = math.max(last, bucket.at + math.ceil(bucket.debt[i] / rule.drain))
    end
  end
  return last
end

-- The fields of the state, in the order in which they are packed. New fields are added at the end: a state that was written before lacks
-- them. ahead: the last grant ahead of the clock may be used from then on; nothing is granted for a time before it. ruled: slot (of a quota
-- -1), drain, weight, span, room and pace of each rule, by which debt and parts are to be read. before: the same of the definition that the
-- newest grant was given under, if that is an older one. leased: places of `running` that are leased. lapses, leased_until: no lease ends
-- before the one, or after the other. expires: the key is kept until then, by what the clock shows (0: not known; NEVER: for good).
local FIELDS = { 'version', 'at', 'hold', 'running', 'n', 'first', 'oldest', 'lost', 'debt', 'parts', 'spent', 'closed', 'ahead', 'ruled', 'before',
  'leased', 'lapses', 'leased_until', 'expires' }

-- A state is the list of these fields, as cmsgpack packs it, with numbers as doubles (the byte DOUBLE, and eight), because `struct` reads
-- and writes many of these at once. A list in any other form, such as that of an older version, is read more slowly.
local NIL, LIST, FIRST = '\192', '\220\0\019', '\220\0\019\203'
local STATE = '>c3BdBdBdBdBdBdBdBdc0c0BdBdc0c0BdBdBdBd'
local FRONT, MIDDLE, BACK = '>xdxdxdxdxdxdxdxd', '>xdxd', '>xdxdxdxd'
local BACK_BYTES = 36

-- Returns what follows from rules alone, worked out once for all buckets that have them: ruled, packed; and, if there is neither a window
-- nor a quota, parts and spent, and both packed.
local by_rules = {}
local function known_by(rules)
  local known = by_rules[rules]
  if known then return known end
  local ruled, none, has_any = {}, {}, false
  for i, rule in ipairs(rules) do
    ruled[i] = { rule.periods and -1 or rule.slot, rule.drain, rule.weight, rule.span, rule.room, rule.pace }
    none[i], has_any = {}, has_any or rule.slot > 0 or rule.periods
  end
  known = { ruled = cmsgpack.pack(ruled), none = not has_any and none, lists = not has_any and cmsgpack.pack(none, none) }
  by_rules[rules] = known
  return known
end

local function packed(bucket)
  local b, known, before = bucket, known_by(bucket.rules), bucket.before
  if type(before) == 'table' then before = cmsgpack.pack(before) end
  return struct.pack(STATE, LIST, DOUBLE, b.version, DOUBLE, b.at, DOUBLE, b.hold, DOUBLE, b.running, DOUBLE, b.n, DOUBLE, b.first,
    DOUBLE, b.oldest, DOUBLE, b.lost, cmsgpack.pack(b.debt), known.lists or cmsgpack.pack(b.parts, b.spent), DOUBLE, b.closed, DOUBLE, b.ahead,
    known.ruled, before or NIL, DOUBLE, b.leased, DOUBLE, b.lapses, DOUBLE, b.leased_until, DOUBLE, b.expires)
end

local function bucket_of(key, definition, at, hold, running, n, first, oldest, lost, debt, parts, spent, closed, ahead, before, leased, lapses,
  leased_until, expires)
  return {
    key = key, rules = definition.rules, keep = definition.keep, counted = definition.counted, own = definition.own,
    version = definition.version, at = at, hold = hold, shut = 0, running = running, n = n, first = first, oldest = oldest, lost = lost,
    debt = debt, parts = parts, spent = spent, closed = closed, ahead = ahead, before = before, leased = leased, lapses = lapses,
    leased_until = leased_until, expires = expires,
  }
end

-- Returns a bucket whose state was packed as above under its definition (`before` stays packed); nil: the state is another one.
local function unpacked(key, definition, state)
  if string.find(state, FIRST, 1, true) ~= 1 then return nil end
  local version, at, hold, running, n, first, oldest, lost, from = struct.unpack(FRONT, state, 4)
  if version ~= definition.version then return nil end
  local known, to, debt = known_by(definition.rules), cmsgpack.unpack_one(state, from - 1)
  local parts, spent = known.none, known.none
  if not parts then
    to, parts = cmsgpack.unpack_one(state, to)
    to, spent = cmsgpack.unpack_one(state, to)
  elseif string.find(state, known.lists, to + 1, true) == to + 1 then
    to = to + #known.lists
  else
    return nil
  end
  local closed, ahead, next = struct.unpack(MIDDLE, state, to + 1)
  if string.find(state, known.ruled, next, true) ~= next then return nil end
  local back = #state - BACK_BYTES
  local before = string.sub(state, next + #known.ruled, back)
  local leased, lapses, leased_until, expires = struct.unpack(BACK, state, back + 1)
  return bucket_of(key, definition, at, hold, running, n, first, oldest, lost, debt, parts, spent, closed, ahead, before, leased, lapses,
    leased_until, expires)
end

-- Returns a bucket by a state of any form; nil: it was never used.
local function unpacked_slowly(key, definition, state, now)
  local fresh = blank(definition.rules, now)
  local bucket = bucket_of(key, definition, now, 0, 0, 0, 1, now, 0, fresh.debt, fresh.parts, fresh.spent, 0, 0, nil, 0, NEVER, 0, 0)
  local values = state and cmsgpack.unpack(state) or {}
  for i, field in ipairs(FIELDS) do
    if values[i] ~= nil then bucket[field] = values[i] end
  end
  return bucket
end

-- A key is kept for a minute more than it matters, in case the clock is set back, and at times for so long more (us) that not each grant
-- has to prolong that.
local MORE, SPARE = 60000000, 30000000

-- Writes a bucket. shown: what the clock shows, by which keys expire.
local function save(bucket, shown)
  local last, expires, ms = matters_until(bucket), bucket.expires, nil
  local least = (last and last > shown and last or shown) + MORE
  if not last then
    bucket.expires = NEVER
  elseif expires < least or expires == NEVER then
    -- Never more than Redis accepts.
    ms = math.min(math.ceil((least + SPARE - shown) / 1000), 1e14)
    bucket.expires = math.min(shown + ms * 1000, NEVER - 1)
  end
  local state, fresh = packed(bucket), bucket.fresh or NO_GRANTS
  if bucket.leases then
    redis.call('HSET', bucket.key, 's', state, 'l', cmsgpack.pack(bucket.leases), unpack(fresh))
  else
    redis.call('HSET', bucket.key, 's', state, unpack(fresh))
  end
  bucket.fresh = nil
  if ms then redis.call('PEXPIRE', bucket.key, ms) end
  if not last and expires < NEVER then redis.call('PERSIST', bucket.key) end
end

-- Returns a bucket as it was written. A missing one counts as never used, because keys expire when they no longer matter. Fails if its key
-- has what no script has written.
local function written(key, definition, now)
  local state, others, freed = unpack(redis.call('HMGET', key, 's', 'o', 'f'))
  local bucket = state and unpacked(key, definition, state) or unpacked_slowly(key, definition, state, now)
  bucket.stored, bucket.others = state and true or false, others and tonumber(others) or 0
  bucket.moved = freed and math.max(bucket.at, tonumber(freed)) or bucket.at
  return bucket
end

-- Reads a bucket. If its key has a value of another program, it is shut (unreadable), and may not be written: the other buckets of the call
-- go on. epoch: closes the bucket; unset: nothing closes it. Deletes a state from before the epoch if the bucket is Sluice's own (all that
-- was granted was seeded when the epoch began), or if the epoch closes it without bound (the state is of another time: an old dump, a clock
-- that was ahead, a definition that is no more).
local function read(key, definition, epoch, now)
  local is_read, bucket = pcall(written, key, definition, now)
  if not is_read then
    bucket = unpacked_slowly(key, definition, nil, now)
    bucket.unreadable, bucket.others, bucket.moved, bucket.shut = true, 0, now, now + MINUTE
    return bucket
  end
  if not epoch then return bucket end
  if bucket.stored and bucket.closed ~= epoch.at and (definition.own or epoch.most >= NEVER) then
    redis.call('PEXPIRE', key, '0')
    return read(key, definition, epoch, now)
  end
  if bucket.closed ~= epoch.at or epoch.stores > 1 then close(bucket, epoch) end
  return bucket
end

-- Buckets in Redis: one hash for each. Its fields: `s`: the bucket's state. `e<n>`: its nth grant (at, units, units given back, version,
-- id, places held, number of parts: if it was made for several times, its further parts follow it and hold no places). `g<id>`: the
-- number of the grant with this id. `p<id>`: places held (and version) of a grant that is not remembered otherwise.
-- `l`: places that are leased: for each grant their number, and when they are free again unless the lease is renewed.
-- `o`: until then nothing is granted ahead, because other programs have called (reserve.lua).
-- State and grants share a key, so that they can only be lost together.
-- Numbers are packed, never turned into text by Lua, which keeps 14 digits.

-- Number of grants of a bucket that are remembered (some more, until they are forgotten together), none for much longer than `keep`.
-- Nothing is given back for older ones (no credit). Under a changed definition of which the old one knows nothing (rebuild.lua),
-- nothing is granted until older ones are beyond what the rules look back on. An expired key leaves no trace: if a definition is changed
-- to one that looks back longer, the caller has to supply what the bucket forgot, or hold the bucket.
local GRANTS = 1000
local SOME = 50
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
  for n = first, last or bucket.n do fields[#fields + 1] = string.format('e%.0f', n) end
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

local function write_grant(bucket, n, entry)
  redis.call('HSET', bucket.key, string.format('e%.0f', n), cmsgpack.pack(entry))
end

-- Writes the grants that `remember` has left for `save`: whoever reads grants again before that calls it.
local function flush(bucket)
  if #bucket.fresh > 0 then redis.call('HSET', bucket.key, unpack(bucket.fresh)) end
  bucket.fresh = {}
end

-- Forgets the oldest grants, several at a time: those beyond GRANTS, and those older than `keep`; never the newest.
local function forget(bucket)
  local last = bucket.first - 1
  if bucket.n - last >= GRANTS + SOME then last = bucket.n - GRANTS end
  if last < bucket.first and bucket.oldest >= bucket.at - bucket.keep * 1.1 then return end
  flush(bucket)
  local fields = {}
  for _, entry in ipairs(grants(bucket, bucket.first, math.min(bucket.first + SOME, bucket.n))) do
    bucket.oldest = entry[1]
    if bucket.first == bucket.n or (bucket.first > last and entry[1] >= bucket.at - bucket.keep) then break end
    fields[#fields + 1] = string.format('e%.0f', bucket.first)
    fields[#fields + 1] = 'g' .. entry[5]
    -- A running job may run for long; there are no more of them than there are places.
    if entry[6] > 0 then redis.call('HSET', bucket.key, 'p' .. entry[5], cmsgpack.pack({ entry[6], entry[4] })) end
    bucket.first, bucket.lost = bucket.first + 1, math.max(bucket.lost, entry[1])
  end
  if #fields > 0 then redis.call('HDEL', bucket.key, unpack(fields)) end
end

-- Remembers a grant, made no later than the bucket's own time. id '': use beyond a grant, which cannot be given back; or a further part
-- of the last grant. parts: number of parts of the grant. It is written by `save`, in one command with the state.
local function remember(bucket, at, id, units, places, parts)
  bucket.n = bucket.n + 1
  if bucket.n == bucket.first then bucket.oldest = at end
  local n = string.format('%.0f', bucket.n)
  local fresh = bucket.fresh
  fresh[#fresh + 1], fresh[#fresh + 2] = 'e' .. n, cmsgpack.pack({ at, units, 0, bucket.version, id, places, parts or 1 })
  if id ~= '' then fresh[#fresh + 1], fresh[#fresh + 2] = 'g' .. id, n end
  forget(bucket)
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
  for i, rule in ipairs(bucket.rules) do
    local spent = bucket.spent[i]
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
-- -1), drain, weight, span, room and pace of each rule, by which debt and slots are to be read. before: the same of the definition that the
-- newest grant was given under, if that is an older one. leased: places of `running` that are leased. lapses, leased_until: no lease ends
-- before the one, or after the other.
local FIELDS = { 'version', 'at', 'hold', 'running', 'n', 'first', 'oldest', 'lost', 'debt', 'slots', 'spent', 'closed', 'ahead', 'ruled', 'before',
  'leased', 'lapses', 'leased_until' }
local CLOSED = 12

-- Writes a bucket. shown: what the clock shows, by which keys expire.
local function save(bucket, shown)
  local values, ruled = {}, {}
  for i, rule in ipairs(bucket.rules) do ruled[i] = { rule.periods and -1 or rule.slot, rule.drain, rule.weight, rule.span, rule.room, rule.pace } end
  bucket.ruled = ruled
  for i, field in ipairs(FIELDS) do values[i] = bucket[field] end
  local fresh = bucket.fresh
  fresh[#fresh + 1], fresh[#fresh + 2] = 's', cmsgpack.pack(values)
  if bucket.leases then fresh[#fresh + 1], fresh[#fresh + 2] = 'l', cmsgpack.pack(bucket.leases) end
  flush(bucket)
  local last = matters_until(bucket)
  if not last then
    redis.call('PERSIST', bucket.key)
    return
  end
  -- A minute more, in case the clock is set back; never more than Redis accepts.
  local ms = math.min(math.max(0, math.ceil((last - shown) / 1000)) + 60000, 1e14)
  redis.call('PEXPIRE', bucket.key, string.format('%.0f', ms))
end

-- Returns the packed state of a bucket; nil: there is none. Deletes a state from before the epoch if the bucket is Sluice's own
-- (all that was granted was seeded when the epoch began), or if the epoch closes it without bound (the state is of another time:
-- an old dump, a clock that was ahead, a definition that is no more).
local function stored_of(key, definition, epoch)
  local stored = redis.call('HGET', key, 's')
  local values = stored and cmsgpack.unpack(stored)
  if not values or not epoch or values[CLOSED] == epoch.at then return values end
  if not definition.own and epoch.most < NEVER then return values end
  redis.call('PEXPIRE', key, '0')
  return nil
end

-- Reads a bucket. A missing one counts as never used, because keys expire when they no longer matter. epoch: closes the bucket;
-- unset: nothing closes it.
local function read(key, definition, epoch, now)
  local stored = stored_of(key, definition, epoch)
  local bucket = blank(definition.rules, now)
  bucket.key, bucket.rules, bucket.keep, bucket.counted = key, definition.rules, definition.keep, definition.counted
  bucket.version, bucket.n, bucket.first, bucket.oldest, bucket.lost = definition.version, 0, 1, now, 0
  bucket.own, bucket.closed, bucket.ahead, bucket.fresh = definition.own, 0, 0, {}
  bucket.stored = stored and true or false
  bucket.leased, bucket.lapses, bucket.leased_until = 0, NEVER, 0
  for i, field in ipairs(FIELDS) do
    if stored and stored[i] ~= nil then bucket[field] = stored[i] end
  end
  if epoch then close(bucket, epoch) end
  return bucket
end

-- Holds a bucket: no grant for `us`. Counts from the bucket's own time, so that after a backward step of the clock the hold cannot
-- end before it began.
local function hold(bucket, us, now)
  local at = math.max(now, bucket.at)
  if at + us > bucket.hold then
    advance(bucket, now)
    bucket.hold, bucket.changed = at + us, true
  end
  return bucket.hold
end

-- Buckets in Redis: a hash for each. `s`: its state. `e<n>`: its nth grant (at, units, given back, version, id, places held, and
-- in how many parts: where it was made at several times, the others follow it, and hold no places); `g<id>`: the number of the
-- grant with this id; `p<id>`: places held (and version) of one that is not remembered otherwise.
-- State and grants share a key, so that they are lost together, if they are.
-- Numbers are packed, never put into text by Lua, which keeps 14 digits.

-- So many grants are remembered of a bucket (some more until they are forgotten together), and none for much longer than
-- `keep`. What is older is given back for nothing (no credit), and under a changed definition that the old one says nothing of
-- (rebuild.lua) nothing is granted until it is out of what the rules look back on. A key that has expired says nothing: who changes a definition to one that looks back longer
-- has to say what it forgot, or hold the bucket.
local GRANTS = 1000
local SOME = 50
-- An answer is given again for so long; a command that comes later than its caller waits for it is not carried out at all.
local ANSWER_MS = 60000

-- Redis's clock, read once: the limits' time, no later than the caller's monotonic clock allows (cap), and as it is.
local function clock(cap)
  local time = redis.call('TIME')
  local shown = tonumber(time[1]) * 1000000 + tonumber(time[2])
  return math.min(shown, cap or shown), shown
end

-- The answer that was given to this id before; or 'late': whoever sent it has given it up by now (what a network
-- held back arrives when it heals), or one of the clocks has stepped.
local function answered(key, call, now, shown)
  local answer = redis.call('GET', key)
  if answer then return cmsgpack.unpack(answer) end
  return call['until'] and shown > call['until'] and { 'late', call.id, now, shown } or nil
end

local function answer(key, reply)
  redis.call('SET', key, cmsgpack.pack(reply), 'PX', ANSWER_MS)
  return reply
end

-- The grants from number `first` on, in order, to `last` (unset: the newest).
local function grants(bucket, first, last)
  local fields, entries = {}, {}
  for n = first, last or bucket.n do fields[#fields + 1] = string.format('e%.0f', n) end
  if #fields == 0 then return entries end
  for i, entry in ipairs(redis.call('HMGET', bucket.key, unpack(fields))) do entries[i] = cmsgpack.unpack(entry) end
  return entries
end

-- The grant with this id, and its number; nil: it is not remembered.
local function grant_of(bucket, id)
  local n = redis.call('HGET', bucket.key, 'g' .. id)
  if not n then return nil end
  return cmsgpack.unpack(redis.call('HGET', bucket.key, 'e' .. n)), tonumber(n)
end

-- The parts of a grant whose first one this is, in order.
local function parts_of(bucket, entry, n)
  return grants(bucket, n, n + (entry[7] or 1) - 1)
end

local function write_grant(bucket, n, entry)
  redis.call('HSET', bucket.key, string.format('e%.0f', n), cmsgpack.pack(entry))
end

-- Forgets the oldest grants, some at a time: beyond so many, and those older than `keep`; never the newest.
local function forget(bucket)
  local last = bucket.first - 1
  if bucket.n - last >= GRANTS + SOME then last = bucket.n - GRANTS end
  if last < bucket.first and bucket.oldest >= bucket.at - bucket.keep * 1.1 then return end
  local fields = {}
  for _, entry in ipairs(grants(bucket, bucket.first, math.min(bucket.first + SOME, bucket.n))) do
    bucket.oldest = entry[1]
    if bucket.first == bucket.n or (bucket.first > last and entry[1] >= bucket.at - bucket.keep) then break end
    fields[#fields + 1] = string.format('e%.0f', bucket.first)
    fields[#fields + 1] = 'g' .. entry[5]
    -- What runs may run for long; there is no more of it than there are places.
    if entry[6] > 0 then redis.call('HSET', bucket.key, 'p' .. entry[5], cmsgpack.pack({ entry[6], entry[4] })) end
    bucket.first, bucket.lost = bucket.first + 1, math.max(bucket.lost, entry[1])
  end
  if #fields > 0 then redis.call('HDEL', bucket.key, unpack(fields)) end
end

-- Remembers a grant, made no later than the bucket's own time. id '': used beyond a grant, which nobody gives back; or a further
-- part of the last one. parts: so many has the grant.
local function remember(bucket, at, id, units, places, parts)
  bucket.n = bucket.n + 1
  if bucket.n == bucket.first then bucket.oldest = at end
  local n = string.format('%.0f', bucket.n)
  local entry = cmsgpack.pack({ at, units, 0, bucket.version, id, places, parts or 1 })
  if id == '' then
    redis.call('HSET', bucket.key, 'e' .. n, entry)
  else
    redis.call('HSET', bucket.key, 'e' .. n, entry, 'g' .. id, n)
  end
  forget(bucket)
end

-- Until when anything of the bucket matters; nil: something runs, of which no time is known.
local function matters_until(bucket)
  if bucket.running > 0 then return nil end
  local last = math.max(bucket.at + bucket.keep, bucket.hold)
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

-- Of the state, in the order in which they are packed. What is added comes last: what was written before lacks it. ahead: from then
-- on the last grant ahead of the clock may be used; nothing is granted for a time before it. ruled: of each rule slot (of a
-- quota -1), drain, weight and span, by which debt and slots are to be read.
local FIELDS = { 'version', 'at', 'hold', 'running', 'n', 'first', 'oldest', 'lost', 'debt', 'slots', 'spent', 'closed', 'ahead', 'ruled' }
local CLOSED = 12

-- shown: what the clock shows, by which keys expire.
local function save(bucket, shown)
  local values, ruled = {}, {}
  for i, rule in ipairs(bucket.rules) do ruled[i] = { rule.periods and -1 or rule.slot, rule.drain, rule.weight, rule.span } end
  bucket.ruled = ruled
  for i, field in ipairs(FIELDS) do values[i] = bucket[field] end
  redis.call('HSET', bucket.key, 's', cmsgpack.pack(values))
  local last = matters_until(bucket)
  if not last then
    redis.call('PERSIST', bucket.key)
    return
  end
  -- A minute more, for a clock that is set back; never so far that Redis would refuse it.
  local ms = math.min(math.max(0, math.ceil((last - shown) / 1000)) + 60000, 1e14)
  redis.call('PEXPIRE', bucket.key, string.format('%.0f', ms))
end

-- The packed state of a bucket; nil: there is none. Of an own one all that was granted is told when an epoch begins, any other is
-- closed for as long as it looks back, if the epoch closes without bound: what was written before that is of another time (an old
-- dump, a clock that was ahead, a definition that is no more), and forgotten.
local function stored_of(key, definition, epoch)
  local stored = redis.call('HGET', key, 's')
  local values = stored and cmsgpack.unpack(stored)
  if not values or not epoch or values[CLOSED] == epoch.at then return values end
  if not definition.own and epoch.most < NEVER then return values end
  redis.call('PEXPIRE', key, '0')
  return nil
end

-- One that is not there counts as never used: keys expire when they matter no more. epoch: what it is closed by; unset: nothing.
local function read(key, definition, epoch, now)
  local stored = stored_of(key, definition, epoch)
  local bucket = blank(definition.rules, now)
  bucket.key, bucket.rules, bucket.keep, bucket.counted = key, definition.rules, definition.keep, definition.counted
  bucket.version, bucket.n, bucket.first, bucket.oldest, bucket.lost = definition.version, 0, 1, now, 0
  bucket.own, bucket.closed, bucket.ahead = definition.own, 0, 0
  bucket.stored = stored and true or false
  for i, value in ipairs(stored or {}) do bucket[FIELDS[i]] = value end
  if epoch then close(bucket, epoch) end
  return bucket
end

-- No grant for so long. Counted from the bucket's own time, so that a clock which stepped back cannot make it end before it began.
local function hold(bucket, us, now)
  local at = math.max(now, bucket.at)
  if at + us > bucket.hold then
    advance(bucket, now)
    bucket.hold, bucket.changed = at + us, true
  end
  return bucket.hold
end

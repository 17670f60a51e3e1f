"""The scripts that decide limits in Redis. Made by scripts/embed.mjs from src/redis/*.lua; do not edit."""
_LIBRARY = r"""-- The arithmetic of limits/decide.ts on one bucket, in integers below 2^53; changes the bucket in place.
-- A bucket: at, hold, shut (as hold; never stored), running (places taken) and, for each rule, debt (of rates), parts (of windows, the
-- newest first) and spent (of quotas: before, start, ends, previous, current, next, margin, calendar).
-- rules, with the names of docs/redis-protocol.md: drain, weight and span as in limits/rule.ts, room (its capacity), slot (the length of a
-- window's parts; of others 0); a quota has also margin and periods: lists of the boundaries of its
-- calendar around the times that matter; a pace, which stands behind its rate, has pace: how late (us) its units may be used.
local PARTS = 60
local NEVER = 9007199254740991
local MOST = 2147483647

local function is_flow(rule)
  return rule.drain > 0
end

-- Returns the pace of the rule at `i`, and the most that it can owe after a grant; nil: it has none.
local function pace_of(rules, i)
  local rule = rules[i + 1]
  if not rule or not rule.pace then return nil end
  return rule, rule.weight + rule.drain * rule.pace
end

local function drained(debt, drain, us)
  if us > math.floor(debt / drain) then return 0 end
  return debt - drain * us
end

-- Returns the parts of a window as of a later time: inserts new ones at the front, drops as many at the end.
local function aged(parts, slot, from, to)
  local by = math.min(PARTS + 1, math.floor(to / slot) - math.floor(from / slot))
  if by == 0 then return parts end
  local seen = {}
  for k = 1, PARTS + 1 do seen[k] = k > by and parts[k - by] or 0 end
  return seen
end

-- Returns the boundaries around the period that contains this time: the starts of the one before it, of it and of the one after it,
-- and the end of that. nil: they are not known.
local function period_at(periods, at)
  for _, list in ipairs(periods) do
    for i = 2, #list - 2 do
      if at >= list[i] and at < list[i + 1] then return list[i - 1], list[i], list[i + 1], list[i + 2] end
    end
  end
  return nil
end

-- Returns the calendar of a quota as text; nil: its caller did not name it.
local function calendar_of(rule)
  local named = rule.calendar
  return named and string.format('%s %s %.0f', named.unit, named.zone, tonumber(named.anchor) or -1)
end

local function begun(rule, at)
  local before, start, ends = period_at(rule.periods, at)
  return { before, start, ends, 0, 0, 0, rule.margin, calendar_of(rule) }
end

-- Returns the periods of a quota as of a later time. A period that ended before the known boundaries is not the one before this.
local function rolled(rule, spent, at)
  local now = spent
  if at >= spent[3] then
    now = begun(rule, at)
    if now[2] == spent[3] then now[1], now[4], now[5] = spent[2], spent[5], spent[6] end
    if now[1] == spent[3] then now[4] = spent[6] end
  end
  if at >= now[2] + rule.margin then now[4] = 0 end
  return now
end

-- Counts units (negative: given back), granted at a time, in each period that is less than a margin away. What is given back makes no
-- room in the period before, which may count as full because nobody looked up what was granted in it.
local function spend(rule, spent, at, units)
  local before, start, ends, margin = spent[1], spent[2], spent[3], rule.margin
  if units > 0 and at >= before - margin and at < start + margin then spent[4] = spent[4] + units end
  if at >= start - margin and at < ends + margin then spent[5] = math.max(0, spent[5] + units) end
  if at >= ends - margin and (units > 0 or at < ends + margin) then spent[6] = math.max(0, spent[6] + units) end
end

local function blank(rules, at)
  local bucket = { at = at, hold = 0, shut = 0, running = 0, debt = {}, parts = {}, spent = {} }
  for i, rule in ipairs(rules) do
    bucket.debt[i], bucket.parts[i], bucket.spent[i] = 0, {}, {}
    if rule.slot > 0 then
      for k = 1, PARTS + 1 do bucket.parts[i][k] = 0 end
    elseif rule.periods then
      bucket.spent[i] = { 0, 0, 0, 0, 0, 0, rule.margin, calendar_of(rule) }
    end
  end
  return bucket
end

-- Makes room for the rates that have a pace: as much as their paces have.
local function ease(bucket)
  local rules, debt = bucket.rules, bucket.debt
  for i = 1, #rules - 1 do
    local pace, full = pace_of(rules, i)
    if pace then
      local rule, units = rules[i], math.floor((full - debt[i + 1]) / pace.weight)
      if units > 0 then debt[i] = math.min(debt[i], (rule.room - units) * rule.weight) end
    end
  end
end

-- Drains a bucket to `now`; time never goes backwards for it.
local function advance(bucket, now)
  local from, rules, debt = bucket.at, bucket.rules, bucket.debt
  local at = now > from and now or from
  for i = 1, #rules do
    local rule = rules[i]
    if rule.slot > 0 then
      bucket.parts[i] = aged(bucket.parts[i], rule.slot, from, at)
    elseif rule.periods then
      bucket.spent[i] = rolled(rule, bucket.spent[i], at)
    elseif rule.drain > 0 then
      debt[i] = drained(debt[i], rule.drain, at - from)
    end
  end
  bucket.at = at
  ease(bucket)
end

-- Returns the debt to which a grant would be added now, under the rule at `i`.
local function owed(bucket, i)
  local rule = bucket.rules[i]
  if not is_flow(rule) then return bucket.running * rule.weight end
  if rule.slot > 0 then
    local sum, parts = 0, bucket.parts[i]
    for k = 1, PARTS + 1 do sum = sum + parts[k] end
    return sum
  end
  if not rule.periods then return bucket.debt[i] end
  local _, start, ends, previous, current, following = unpack(bucket.spent[i])
  if bucket.at < start + rule.margin then return math.max(current, previous) end
  if bucket.at < ends - rule.margin then return current end
  return math.max(current, following)
end

-- Returns the units that are free by the rules that count units, and the places that are free by concurrency. One more request of a
-- running job (further) takes no place.
local function free(bucket, further)
  local units, places, rules = MOST, MOST, bucket.rules
  for i = 1, #rules do
    local rule = rules[i]
    local is_of_units = rule.drain > 0
    if not rule.pace and (is_of_units or not further) then
      local left = math.max(0, math.floor((rule.room * rule.weight - owed(bucket, i)) / rule.weight))
      if is_of_units and left < units then units = left end
      if not is_of_units and left < places then places = left end
    end
  end
  if bucket.hold > bucket.at or bucket.shut > bucket.at then units = 0 end
  return units, places
end

-- Returns when `need` units are free under the rule at `i`; `need` above what the rule holds counts as all that it holds.
local function free_at(bucket, i, need)
  local rule = bucket.rules[i]
  local fits = is_flow(rule) and math.min(math.max(need, 1), rule.room) or 1
  local missing = owed(bucket, i) - (rule.room - fits) * rule.weight
  if not is_flow(rule) then return missing <= 0 and 0 or NEVER end
  if missing <= 0 then return bucket.at end
  if rule.slot > 0 then
    local kept, oldest = 0, 0
    repeat
      oldest = oldest + 1
      kept = kept + bucket.parts[i][oldest]
    until kept > rule.room - fits
    return (math.floor(bucket.at / rule.slot) - oldest + PARTS + 2) * rule.slot
  end
  if not rule.periods then
    local us, pace, full = math.ceil(missing / rule.drain), pace_of(bucket.rules, i)
    if pace and fits <= math.floor(full / pace.weight) then
      us = math.min(us, math.ceil((bucket.debt[i + 1] + fits * pace.weight - full) / pace.drain))
    end
    return bucket.at + us
  end
  local spent = bucket.spent[i]
  if spent[6] + fits > rule.room then return select(4, period_at(rule.periods, bucket.at)) + rule.margin end
  return (spent[5] + fits > rule.room and spent[3] or spent[2]) + rule.margin
end

-- Returns when `need` units and a place are free.
local function next_at(bucket, now, further, need)
  local at = math.max(now, bucket.hold, bucket.shut)
  for i, rule in ipairs(bucket.rules) do
    if not rule.pace and (is_flow(rule) or not further) then at = math.max(at, free_at(bucket, i, need)) end
  end
  return at
end

-- Counts units in the part of a window that contains a time; does nothing if that part is no longer counted.
local function count(bucket, i, at, units)
  local slot = bucket.rules[i].slot
  local part = math.floor(bucket.at / slot) - math.floor(at / slot) + 1
  if part < 1 or part > PARTS + 1 then return end
  bucket.parts[i][part] = math.min(math.max(0, bucket.parts[i][part] + units), MOST)
end

-- Charges units and places. Returns how many places were taken: none if no rule counts them.
local function charge(bucket, units, places)
  local taken, rules, debt = 0, bucket.rules, bucket.debt
  for i = 1, #rules do
    local rule = rules[i]
    if not is_flow(rule) then
      taken = places
    elseif rule.slot > 0 then
      count(bucket, i, bucket.at, units)
    elseif rule.periods then
      spend(rule, bucket.spent[i], bucket.at, units)
    else
      debt[i] = debt[i] + units * rule.weight
    end
  end
  bucket.running = bucket.running + taken
  return taken
end

-- Returns for each of a bucket's grants (at, units, units given back), the last of which is its newest, what each rule that is a rate owes
-- if its bucket was empty right after that grant.
local function floors_of(bucket, entries)
  local floors, sums = {}, {}
  for k = #entries, 1, -1 do
    local at, granted, back = unpack(entries[k])
    local floor = {}
    floors[k] = floor
    for i, rule in ipairs(bucket.rules) do
      if is_flow(rule) and rule.slot == 0 and not rule.periods then
        local later = floors[k + 1]
        floor[i] = later and math.max(later[i], sums[i] - rule.drain * (bucket.at - entries[k + 1][1])) or 0
        sums[i] = (sums[i] or 0) + (granted - back) * rule.weight
      end
    end
  end
  return floors
end

-- Settles a grant of `granted` that used `more` units than it was granted (negative: fewer).
-- floor: what the grants after it make each rate owe at least. nil: all of `more` counts at once: it is use beyond a grant, or the
-- vendor itself refunds.
-- is_again: the request has been counted before, which is enough for quotas: their margin is what is stated.
local function settle(bucket, granted, more, floor, is_again)
  for i, rule in ipairs(bucket.rules) do
    if rule.slot > 0 then
      local oldest = (math.floor(bucket.at / rule.slot) - PARTS) * rule.slot
      count(bucket, i, more > 0 and math.max(granted, oldest) or granted, more)
    elseif rule.periods then
      if not is_again then spend(rule, bucket.spent[i], granted, more) end
    elseif is_flow(rule) then
      -- A pace may have made room since, which the grants alone do not show.
      bucket.debt[i] = math.max(bucket.debt[i] + more * rule.weight, math.min(bucket.debt[i], floor and floor[i] or 0))
    end
  end
end

-- Decides whether the state is whole, by a hash beside the buckets, since it is lost with them. Its fields:
-- id: id of the epoch, random. history: the server's history of writes when the epoch began. at: that time, in us.
-- most: a bucket that was not written since then is closed from then on for as long as its rules look back, but no more us than this.
-- owner: the database that began it; only it begins epochs here, unless several databases share the limits. unset: anybody may.
-- stores: number of databases that share the limits. joined: how many of them have added to this epoch what they granted before.
-- o:<owner>: id under which a database takes part in this epoch. m:<id>: 1 for each such id.
local MINUTE = 60000000
-- Use that is known from another clock, or was granted ahead, is no later than this (us) after the epoch began.
local LATE = 1000000

-- Returns the name that the server gives to its history of writes: it changes after a restart (whatever the server has read from its
-- disk), a failover, or a while as a replica. A server that gives none is trusted; one that ceases to give it is not.
local function history()
  local info = redis.pcall('INFO', 'replication')
  local from = type(info) == 'string' and string.find(info, 'master_replid:', 1, true)
  return from and string.match(info, '^%x+', from + 14) or ''
end

-- Returns fields of an epoch; none if its key has a value of another program, which the next epoch replaces.
local function fields_of(key, ...)
  local found = redis.pcall('HMGET', key, ...)
  return unpack(found.err and {} or found)
end

-- Returns the epoch in force. If the state is not whole, or is not of the epoch that the caller knows: nil, and the reply 'lost',
-- the call's id and the id of the epoch in force ('': none).
local function whole(key, call)
  local member = 'm:' .. (call.epoch or '')
  local id, of, at, most, stores, joined, is_member =
    fields_of(key, 'id', 'history', 'at', 'most', 'stores', 'joined', member)
  if id and of == history() and (not call.epoch or is_member) then
    stores = tonumber(stores or 1)
    return { at = tonumber(at), most = tonumber(most), stores = stores, lacks = tonumber(joined or 1) < stores }
  end
  return nil, { 'lost', call.id, id or '' }
end

-- Returns for how many us after a time the grants before it may matter to a rule. Running jobs have no such time: a minute.
local function looks_back(rule, from)
  if not is_flow(rule) then return MINUTE end
  local _, _, ends, following = period_at(rule.periods or {}, from)
  if not ends then return rule.span end
  -- Grants close to the end count in the next period, too.
  return (from < ends - rule.margin and ends or following) + rule.margin - from
end

-- Counts in a bucket of Sluice's own what several databases granted before the epoch. What counts in windows and quotas is the sum of
-- what they add (join.lua); until all have added it, the bucket is shut. Debts cannot be added, because each ledger drains its own: a rate
-- is full when the epoch begins, which is never too little.
local function gather(bucket, epoch)
  local from, span = epoch.at + LATE, 0
  for i, rule in ipairs(bucket.rules) do
    if is_flow(rule) and (rule.slot > 0 or rule.periods) then
      span = math.max(span, looks_back(rule, from))
    elseif is_flow(rule) and bucket.closed ~= epoch.at then
      local full = rule.room * rule.weight
      local owes = bucket.at < from and full + rule.drain * (from - bucket.at) or drained(full, rule.drain, bucket.at - from)
      bucket.debt[i] = math.max(bucket.debt[i], owes)
    end
  end
  if not epoch.lacks then return end
  bucket.shut = from + span
  bucket.lost = math.max(bucket.lost, from)
end

-- Closes a bucket for the epoch, once: what was granted before the epoch is not known, as if the bucket had forgotten it. For a bucket
-- of Sluice's own it is known (state.lua), because nobody else takes from it.
local function close(bucket, epoch)
  if bucket.own and epoch.stores > 1 then gather(bucket, epoch) end
  if bucket.own then bucket.closed = epoch.at end
  if bucket.closed == epoch.at then return end
  local from, span = bucket.stored and math.max(epoch.at, bucket.at) or epoch.at, 0
  for _, rule in ipairs(bucket.rules) do span = math.max(span, looks_back(rule, from)) end
  bucket.closed = epoch.at
  if epoch.most > 0 then bucket.hold = math.max(bucket.hold, from + math.min(span, epoch.most)) end
  if epoch.most >= span then bucket.lost = math.max(bucket.lost, from) end
end

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

-- Rebuilds a bucket under a changed definition: as if the new rules had been in force for as long as they look back, from the grants
-- that are remembered and what was given back of them. As `rebuild` of test/limits/rebuild.ts.

-- Number of its spans for which a changed rate looks back.
local RATE_SPANS = 3

-- Returns the units that a rate, or a pace, grants at once.
local function at_once(room, drain, weight, pace)
  return pace and 1 + drain * pace / weight or room
end

-- Returns what the definition of the newest grant allows in `us` at least, beyond what a new rate allows, as a debt of that rate;
-- math.huge: it had no rule that counts units. In the same steps of arithmetic as test/limits/rebuild.ts.
local function beyond(before, rule, us)
  local least = math.huge
  for k, was in ipairs(before or {}) do
    local slot, drain, weight, _, room, pace = unpack(was)
    -- States that were written before lack the room.
    local allowed = room and (slot < 0 and room or at_once(room, drain, weight, pace) + us * drain / weight) or 0
    if slot > 0 and room then allowed = us * room / (PARTS * slot) end
    -- Over more than its window a rate with a pace allows what the pace does, which is more.
    local has_pace = before[k + 1] and before[k + 1][6]
    if drain > 0 and not has_pace then least = math.min(least, allowed * (1 - 1e-12)) end
  end
  local own = at_once(rule.room, rule.drain, rule.weight, rule.pace)
  return math.floor((least - own - us * rule.drain / rule.weight) * rule.weight)
end

-- Returns what a rate of the new definition owes at the bucket's time.
local function owed_by_rate(bucket, rule, entries)
  local units, most, last = 0, 0, beyond(bucket.before, rule, RATE_SPANS * rule.span)
  for n = #entries, 1, -1 do
    local at, granted, back = unpack(entries[n])
    local age = bucket.at - at
    if age >= RATE_SPANS * rule.span then break end
    units = units + granted - back
    local owes = units * rule.weight - rule.drain * age
    if age >= rule.span then owes = owes - math.max(0, math.min(beyond(bucket.before, rule, age), last)) end
    most = math.max(most, owes)
  end
  return most
end

-- Notes under which definition the newest grant was given, before the bucket gets another.
local function note_before(bucket, entries)
  for n = #entries, 1, -1 do
    if entries[n][2] > 0 then
      if entries[n][4] == bucket.version then bucket.before = bucket.ruled end
      return
    end
  end
end

-- Sets what a rate or a window of the new definition owes at the bucket's time.
local function rebuild_flow(bucket, i, entries)
  local rule = bucket.rules[i]
  if rule.slot == 0 then
    bucket.debt[i] = owed_by_rate(bucket, rule, entries)
    return
  end
  for _, entry in ipairs(entries) do
    if entry[1] > bucket.at - rule.span then count(bucket, i, entry[1], entry[2] - entry[3]) end
  end
end

-- Sets what counts in the periods of a quota: not what was charged once more. How much counts in the period before is not looked up,
-- because that may be months: while it matters, that period is full.
local function rebuild_quota(bucket, i, entries)
  local rule = bucket.rules[i]
  local spent = begun(rule, bucket.at)
  for _, entry in ipairs(entries) do
    if entry[7] ~= AGAIN then spend(rule, spent, entry[1], entry[2] - entry[3]) end
  end
  spent[4] = bucket.at < spent[2] + rule.margin and rule.room or 0
  bucket.spent[i] = spent
end

-- Returns what counted in the same period under the old definition, which includes grants that have been forgotten since.
local function counted_before(old, spent)
  for _, was in ipairs(old) do
    if was[2] == spent[2] and was[3] == spent[3] and was[7] == spent[7] then return was end
  end
  return nil
end

-- Returns the state of an old rule that counts grants which are no longer remembered, if that state is valid for the
-- new rule: the parts of a window with equally long parts, or the debt of a rate that drained no faster and looked back
-- as far.
local function carried(bucket, rule, debt, parts)
  for k, was in ipairs(bucket.ruled or {}) do
    local slot, drain, weight, span, _, pace = unpack(was)
    if rule.slot > 0 and slot == rule.slot then return parts[k], nil end
    local is_level = rule.slot == 0 and slot == 0 and drain > 0 and rule.span <= span and debt[k] and not pace == not rule.pace
    local is_same = drain == rule.drain and weight == rule.weight
    if is_level and (is_same or rule.drain / rule.weight > drain / weight * (1 + 1e-9)) then
      return nil, math.ceil(debt[k] / weight) * rule.weight
    end
  end
  return nil, nil
end

-- Returns what a rate has to owe for grants that have been forgotten since: as much as the old rates owed, and at least
-- so much that it has no more room than the faster of them had.
local function owed_since_lost(bucket, rule, debt)
  local most = 0
  for k, was in ipairs(bucket.ruled or {}) do
    local slot, drain, weight, _, room = unpack(was)
    if slot == 0 and drain > 0 then
      local units = math.ceil(debt[k] / weight)
      if room and drain / weight >= rule.drain / rule.weight then units = units + rule.room - room end
      most = math.max(most, units * rule.weight)
    end
  end
  return most
end

-- Returns whether the rule at `i` is the one that was at `k` under the old definition. A quota may have had a wider margin: then it
-- counts what was granted until now by that. spent: what counted in periods then.
local function is_same(bucket, i, k, spent)
  local rule, was = bucket.rules[i], bucket.ruled[k]
  if not rule or not was then return rule == was end
  local slot, drain, weight, span, room, pace = unpack(was)
  if drain ~= rule.drain or weight ~= rule.weight or room ~= rule.room or pace ~= rule.pace then return false end
  if not rule.periods then return span == rule.span and slot == rule.slot and (slot > 0 or drain > 0) end
  local now, margin, calendar = begun(rule, bucket.at), spent[k][7], spent[k][8]
  for n = 1, 3 do
    if spent[k][n] ~= now[n] then return false end
  end
  -- Calendars of which one is not named are the same while their periods are.
  if slot ~= -1 or calendar and now[8] and calendar ~= now[8] then return false end
  return margin and margin >= rule.margin and span - margin == rule.span - rule.margin
end

-- Returns the place of the rule at `i`, with its pace, under the old definition; nil: it had no such rule. As `sameRule` of
-- test/limits/rebuild.ts.
local function kept(bucket, i, spent)
  for k in ipairs(bucket.ruled or {}) do
    local rule, after, was = bucket.rules[i], bucket.rules[i + 1], bucket.ruled[k + 1]
    local has_pace = not rule.pace and (after and after.pace or was and was[6])
    if is_same(bucket, i, k, spent) and (not rule.pace or is_same(bucket, i - 1, k - 1, spent))
      and (not has_pace or is_same(bucket, i + 1, k + 1, spent)) then return k end
  end
  return nil
end

-- Rebuilds a bucket. A rule that the old definition had too keeps what it knows.
-- definition.counted: the version from which on every definition has had a concurrency; before it, running jobs were not counted all
-- the time.
local function rebuild(bucket, definition)
  local entries = grants(bucket, bucket.first)
  local old, debt, parts = bucket.spent, bucket.debt, bucket.parts
  local fresh = blank(bucket.rules, bucket.at)
  bucket.debt, bucket.parts, bucket.spent = fresh.debt, fresh.parts, fresh.spent
  note_before(bucket, entries)
  if not definition.counted or bucket.version < definition.counted then bucket.running = bucket.leased end
  for i, rule in ipairs(bucket.rules) do
    local until_known, same = bucket.lost + rule.span, kept(bucket, i, old)
    if same then
      bucket.debt[i], bucket.parts[i], bucket.spent[i] = debt[same], { unpack(parts[same]) }, { unpack(old[same]) }
      if rule.periods then bucket.spent[i][7], bucket.spent[i][8] = rule.margin, calendar_of(rule) end
      until_known = 0
    elseif rule.periods then
      rebuild_quota(bucket, i, entries)
      local spent = bucket.spent[i]
      local was = bucket.lost >= spent[2] - rule.margin and counted_before(old, spent)
      if was then spent[5], spent[6] = was[5], was[6] end
      until_known = (was or bucket.lost < spent[2] - rule.margin) and 0 or spent[3] + rule.margin
    elseif is_flow(rule) then
      rebuild_flow(bucket, i, entries)
      local same_parts, owes = carried(bucket, rule, debt, parts)
      if until_known > bucket.at and (same_parts or owes) then
        bucket.parts[i], bucket.debt[i] = same_parts or bucket.parts[i], owes or bucket.debt[i]
        until_known = 0
      elseif rule.slot == 0 and bucket.lost > bucket.at - RATE_SPANS * rule.span then
        bucket.debt[i] = math.max(bucket.debt[i], owed_since_lost(bucket, rule, debt))
      end
    else
      until_known = 0
    end
    if bucket.lost > 0 and until_known > bucket.at then bucket.hold = math.max(bucket.hold, until_known) end
  end
  bucket.version = definition.version
end

-- Reads the buckets of a call, whose keys are the last. Instead of the buckets it may return what the caller has to do first:
-- 'superseded', the bucket whose definition in force the caller does not know, and that version; or 'calendar', the time, what the
-- clock shows, and for each bucket a time around which it needs boundaries too (0: it has them).
-- latest: the last time that anything is granted for; unset: now.
local function open(keys, call, epoch, now, shown, latest)
  local buckets, missing, lacks, ahead = {}, {}, false, #keys - #call.buckets
  for i, definition in ipairs(call.buckets) do
    local bucket = read(keys[ahead + i], definition, epoch, now)
    if bucket.leased > 0 then lapse(bucket, now) end
    if bucket.version > definition.version then return nil, { 'superseded', call.id, i, bucket.version } end
    local is_old, rules = bucket.version < definition.version, bucket.rules
    missing[i] = 0
    for k = 1, #rules do
      local periods = rules[k].periods
      if periods then
        local at = math.max(now, bucket.at)
        local last = math.max(latest or now, at)
        if is_old and not period_at(periods, bucket.at) then
          missing[i], lacks = bucket.at, true
        elseif not period_at(periods, at) and missing[i] == 0 then
          missing[i], lacks = at, true
        elseif not period_at(periods, last) and missing[i] == 0 then
          missing[i], lacks = last, true
        end
      end
    end
    -- Done at the first call only, because it takes a while with many grants; the result does not depend on when it is done.
    if is_old and missing[i] ~= bucket.at then
      rebuild(bucket, definition)
      save(bucket, shown)
    end
    buckets[i] = bucket
  end
  if not lacks then return buckets end
  local reply = { 'calendar', call.id, now, shown }
  -- `unpack` fails on more than 8,000 values.
  for i, at in ipairs(missing) do reply[4 + i] = at end
  return nil, reply
end

"""
RESERVE = _LIBRARY + r"""-- Grants what fits. KEYS: key of the epoch, of the reply, then of each bucket. ARGV[1]: the call as JSON (epoch, cap, until, further,
-- ahead, lease and after may be unset):
-- id: id of the grant; the same id gets the same reply.
-- epoch: the one that the caller knows.
-- cap: the latest time that Redis's clock can show, by the caller's monotonic clock.
-- until: the call is too late when Redis's clock shows more.
-- further: one more request of a running job, which takes no place of concurrency.
-- ahead: what fits within this time (us) is granted now, for use from then on; unset: only what may be used at once. Calls without it come
-- from other programs: for a while after them nothing is granted ahead, because they would not find room.
-- lease: the places are free again after this time (us, at most a minute) unless the lease is renewed (settle.lua); unset: when the grant
-- ends.
-- buckets: for each its version, counted, keep (us for which grants are remembered) and rules.
-- items: for each
--   want: how many times it is wanted. Each gets the units of all its buckets, or nothing.
--   takes: pairs of a bucket (1: the first) and units.
--   after: they may not be used before this time (us), from which `ahead` counts; unset: now.
-- Returns 'decided', the id (a client may mix up replies when one is lost on the way), the time, what the clock shows, and for each item:
-- - how many of the `want` were granted;
-- - after how many us to send the rest again (0: all were granted);
-- - which bucket is the last to have room (0: none lacks it);
-- - with ahead: after how many us the grants may be used; why that bucket denies (1: it is closed or held, 2: other programs have called
--   lately, 3: it has granted for later times already, 0: its units are used); for how many us it has granted nothing and got nothing back.
-- At last the buckets whose keys have a value of another program: they are held for a minute.
-- Or 'lost', the id and the epoch in force; or 'late', the id and times; or what `open` returns.

-- Grants reach no further ahead than this (us), beyond the time from which they are wanted: until then a caller without `ahead` is denied.
local AHEAD = 200000
-- They are wanted no later than this (us) from now.
local AFTER = 250000
-- Nothing is granted ahead for so long (us) after a call of another program.
local OTHERS = 10000000

-- Returns how many of an item fit into its buckets. An item that takes no units still waits while nothing is free.
local function fitting(buckets, item, further)
  local fits, takes = item.want, item.takes
  for k = 1, #takes do
    local take = takes[k]
    local units, places = free(buckets[take[1]], further)
    if units == 0 then fits = 0 elseif take[2] > 0 then fits = math.min(fits, math.floor(units / take[2])) end
    if places < fits then fits = places end
  end
  return fits
end

-- Returns when `many` of an item fit at one moment; NEVER: that is more than a bucket holds, or places are lacking.
local function fits_at(buckets, item, now, further, many)
  local at = now
  for _, take in ipairs(item.takes) do
    local bucket, need = buckets[take[1]], math.max(many * take[2], 1)
    local units, places = free(bucket, further)
    for _, rule in ipairs(bucket.rules) do
      if is_flow(rule) and need > rule.room then return NEVER end
    end
    if places < many then return NEVER end
    at = math.max(at, bucket.ahead, units < need and next_at(bucket, now, further, need) or now)
  end
  return at
end

-- Returns from when an item is wanted, the latest time that it is granted for, and the last of its buckets that other programs take from
-- (0: none).
local function times_of(buckets, item, now, call)
  local others, takes = 0, item.takes
  for k = 1, #takes do
    if buckets[takes[k][1]].others > now then others = takes[k][1] end
  end
  local from = now + math.min(item.after or 0, AFTER)
  return from, others > 0 and now or from + math.min(call.ahead or 0, AHEAD), others
end

-- Returns how many of an item are granted, and when they may be used: the most that fit at one moment from `from` to `latest`. One
-- moment, because units counted at several moments may all be used at the last of them; so what fits at once may wait for the others.
local function reach(buckets, item, now, from, latest, further)
  local at, takes = from, item.takes
  for k = 1, #takes do at = math.max(at, buckets[takes[k][1]].ahead) end
  if at > latest then return 0, at end
  local fit = fitting(buckets, item, further)
  if latest == now then return fit, at end
  -- Mostly all fit, or not even one more: so those two are tried first.
  local too_many, try, after = item.want + 1, item.want, fit + 1
  while too_many - fit > 1 do
    local by = fits_at(buckets, item, from, further, try)
    if by <= latest then fit, at = try, by else too_many = try end
    try, after = after or math.floor((fit + too_many) / 2), nil
  end
  return fit, at
end

-- Returns after how many us to send the next of an item again (when it fits into all its buckets, less how far ahead grants reach), and
-- which bucket is the last to have room.
local function delay(buckets, item, now, latest, further)
  local at, last = 0, 0
  for _, take in ipairs(item.takes) do
    local bucket = buckets[take[1]]
    local units, places = free(bucket, further)
    local lacks = units < math.max(take[2], 1) or places < 1
    if lacks or bucket.ahead > latest then
      local next = math.max(bucket.ahead, lacks and next_at(bucket, now, further, take[2]) or 0)
      if next > at then at, last = next, take[1] end
    end
  end
  return math.max(at - latest, 1), last
end

-- Grants what fits of an item from `from` to `latest`. Returns how many, and when they may be used. Adds to `granted`, for each bucket,
-- the units at each time that they are granted for, and the places.
local function grant(buckets, item, now, from, latest, further, granted)
  local fits, at = reach(buckets, item, now, from, latest, further)
  if fits == 0 then return 0, now end
  local takes = item.takes
  for k = 1, #takes do
    local i, units = takes[k][1], fits * takes[k][2]
    local bucket, parts = buckets[i], granted[i]
    if at > now then
      advance(bucket, at)
      bucket.ahead = at
    end
    bucket.moved = now
    local places = charge(bucket, units, further and 0 or fits)
    if not parts then
      granted[i] = { { at = bucket.at, units = units }, places = places }
    else
      parts.places = parts.places + places
      if parts[#parts].at < bucket.at then parts[#parts + 1] = { at = bucket.at, units = 0 } end
      parts[#parts].units = parts[#parts].units + units
    end
  end
  return fits, at
end

-- Returns why a bucket denies an item that is wanted from `from` on, as the reply has it.
local function cause_of(bucket, now, from, latest)
  if math.max(bucket.hold, bucket.shut) > latest then return 1 end
  if bucket.others > now and from > now then return 2 end
  return bucket.ahead > latest and 3 or 0
end

local function decide(buckets, call, now, granted, reply)
  local items, n = call.items, #reply
  for k = 1, #items do
    local item = items[k]
    local from, latest, others = times_of(buckets, item, now, call)
    local fits, at = grant(buckets, item, now, from, latest, call.further, granted)
    local wait, last = 0, 0
    if fits < item.want then
      wait, last = delay(buckets, item, now, latest, call.further)
      if others > 0 and from > now then last = others end
    end
    reply[n + 1], reply[n + 2], reply[n + 3], n = fits, wait, last, n + 3
    if call.ahead then
      local lacking = buckets[last]
      reply[n + 1], reply[n + 2] = at - now, lacking and cause_of(lacking, now, from, latest) or 0
      reply[n + 3], n = lacking and math.max(0, now - lacking.moved) or 0, n + 3
    end
  end
end

-- Returns the last time for which a call may be granted anything.
local function horizon(call, now)
  local after = 0
  for _, item in ipairs(call.items) do after = math.max(after, item.after or 0) end
  return now + math.min(after, AFTER) + math.min(call.ahead or 0, AHEAD)
end

-- Reads until when nothing is granted ahead; if the call is another program's, writes it for each bucket that has a state. The state
-- itself stays, because a denied bucket is not written.
local function heed_others(buckets, call, now)
  for _, bucket in ipairs(buckets) do
    if not call.ahead and bucket.stored and bucket.others < now + OTHERS / 2 then
      redis.call('HSET', bucket.key, 'o', string.format('%.0f', now + OTHERS))
    end
  end
end

local function reserve(keys, call)
  local epoch, lost = whole(keys[1], call)
  if not epoch then return lost end
  local now, shown = clock(call.cap)
  local given = answered(keys[2], call, now, shown)
  if given then return given end
  local buckets, first = open(keys, call, epoch, now, shown, horizon(call, now))
  if not buckets then return first end
  heed_others(buckets, call, now)
  for _, bucket in ipairs(buckets) do advance(bucket, now) end
  local granted, reply = {}, { 'decided', call.id, now, shown }
  decide(buckets, call, now, granted, reply)
  for i, bucket in ipairs(buckets) do
    if bucket.unreadable then reply[#reply + 1] = i end
  end
  -- A denied bucket is not written: its time moves on at its next grant.
  for i, parts in pairs(granted) do
    if call.lease and parts.places > 0 then
      buckets[i].running = buckets[i].running - parts.places
      lease(buckets[i], call.id, parts.places, buckets[i].at + math.min(call.lease, MINUTE))
      parts.places = 0
    end
    remember(buckets[i], parts[1].at, call.id, parts[1].units, parts.places, #parts)
    for k = 2, #parts do remember(buckets[i], parts[k].at, '', parts[k].units, 0) end
    save(buckets[i], shown)
  end
  return answer(keys[2], reply)
end

return reserve(KEYS, call_of(ARGV[1]))
"""
SETTLE = _LIBRARY + r"""-- Records what happened to grants. KEYS: key of the epoch, of the reply, then of each bucket. ARGV[1]: the call as JSON:
-- id: id of this call, which is carried out once.
-- epoch, cap, until, buckets: as in reserve.lua (`full`: the bucket's vendor itself refunds).
-- acts: in order, each on one bucket (1: the first):
--   grant, more: the grant used `more` units than granted (negative: fewer).
--   grant alone: nothing of it was used, so its places are free, too.
--   more alone: so many units count from now on, for a request that may have arrived late; quotas do not count it again.
--   ended: number of places that are free again, of that grant (unset: the grant is not known).
--   renew: the grant's lease ends so many us (at most a minute) from now; with places, it has so many from now on, even if its lease had
--   ended.
--   hold: us from now without a grant; 0 ends what such acts hold.
-- Returns 'decided', the id, the time, what the clock shows, and for each act its effect: units charged (negative: given back), places
-- freed, places leased (0: others may have them), or the time until which the bucket is held.
-- Or 'lost', the id and the epoch in force; or 'late', the id and times; or what `open` returns.

-- Frees places that a grant holds, at most `most`. A grant from before places were counted all the time holds none.
local function leave(bucket, id, most)
  local leased = leases_of(bucket)[id]
  if leased then
    local freed = math.min(most, leased[1])
    lease(bucket, id, leased[1] - freed, leased[2])
    bucket.changed = true
    return freed
  end
  local entry, n = grant_of(bucket, id)
  local kept = not entry and redis.call('HGET', bucket.key, 'p' .. id)
  local held, version = 0, 0
  if entry then held, version = entry[6], entry[4] elseif kept then held, version = unpack(cmsgpack.unpack(kept)) end
  if not bucket.counted or version < bucket.counted then return 0 end
  local freed = math.min(most, held, bucket.running)
  if freed == 0 then return 0 end
  ease(bucket)
  bucket.running, bucket.changed = bucket.running - freed, true
  if entry then
    entry[6] = held - freed
    write_grant(bucket, n, entry)
  elseif held > freed then
    redis.call('HSET', bucket.key, 'p' .. id, cmsgpack.pack({ held - freed, version }))
  else
    redis.call('HDEL', bucket.key, 'p' .. id)
  end
  return freed
end

-- Gives units of a grant back, as if they had not been granted; what was granted since counts. Gives back nothing if the grant is not
-- remembered.
local function refund(bucket, id, units, full)
  local first, n = grant_of(bucket, id)
  if not first then return 0 end
  ease(bucket)
  local back, entries = 0, full and parts_of(bucket, first, n) or grants(bucket, n)
  local floors = not full and floors_of(bucket, entries) or {}
  -- The caller does not know which part they belong to. The earliest is safe: the rest is forgotten later, and fewer are credited.
  for k = 1, first[7] or 1 do
    local part = entries[k]
    local some = math.min(units - back, part[2] - part[3])
    if some > 0 then
      settle(bucket, part[1], -some, floors[k])
      part[3], back, bucket.changed = part[3] + some, back + some, true
      write_grant(bucket, n + k - 1, part)
    end
  end
  return -back
end

-- Charges units that were used beyond a grant, as a debt at the time of its last part. If the grant is not remembered, or took nothing,
-- that time is not known: the units count now. So do those of a request that is charged once more (id is nil).
local function overrun(bucket, id, units, now)
  advance(bucket, now)
  local first, n
  if id then first, n = grant_of(bucket, id) end
  local parts = first and parts_of(bucket, first, n) or {}
  local last = parts[#parts]
  settle(bucket, last and last[2] > 0 and last[1] or bucket.at, units, nil, not id)
  remember(bucket, bucket.at, '', units, 0, not id and AGAIN or 1)
  flush(bucket)
  bucket.changed = true
  return units
end

-- Frees places whose grant is not known.
local function release(bucket, places)
  local freed = math.min(places, bucket.running - bucket.leased)
  if freed == 0 then return 0 end
  ease(bucket)
  bucket.running, bucket.changed = bucket.running - freed, true
  return freed
end

-- Renews a lease. Returns how many places it has.
local function renew(bucket, act, now)
  local leased = leases_of(bucket)[act.grant]
  local places = act.places or (leased and leased[1] or 0)
  if places == 0 then return 0 end
  lease(bucket, act.grant, places, math.max(now, bucket.at) + math.min(act.renew, MINUTE))
  bucket.changed = true
  return places
end

-- Holds a bucket: no grant for `us`. Counts from the bucket's own time, so that after a backward step of the clock the hold cannot
-- end before it began. 0 ends such holds, unless what holds the bucket now may be something else: a new epoch, another definition, or
-- an older version of this script.
local function hold(bucket, us, now)
  local packed = redis.call('HGET', bucket.key, 'r')
  local held, without, closed, version = unpack(packed and cmsgpack.unpack(packed) or {})
  local is_known = held == bucket.hold and closed == bucket.closed and version == bucket.version
  local before = is_known and without or bucket.hold
  local from = math.max(now, bucket.at)
  if us > 0 and from + us > bucket.hold then
    advance(bucket, now)
    redis.call('HSET', bucket.key, 'r', cmsgpack.pack({ from + us, before, bucket.closed, bucket.version }))
    bucket.hold, bucket.changed = from + us, true
  elseif us == 0 and is_known then
    bucket.hold, bucket.changed, bucket.freed = before, true, true
  end
  return bucket.hold
end

local function act_on(bucket, act, full, now)
  if act.hold then return hold(bucket, act.hold, now) end
  if act.renew then return renew(bucket, act, now) end
  if act.ended then return act.grant and leave(bucket, act.grant, act.ended) or release(bucket, act.ended) end
  if not act.more then
    leave(bucket, act.grant, MOST)
    return refund(bucket, act.grant, MOST, full)
  end
  if act.more > 0 then return overrun(bucket, act.grant, act.more, now) end
  return refund(bucket, act.grant, -act.more, full)
end

local function carry_out(keys, call)
  local epoch, lost = whole(keys[1], call)
  if not epoch then return lost end
  local now, shown = clock(call.cap)
  local given = answered(keys[2], call, now, shown)
  if given then return given end
  local buckets, first = open(keys, call, epoch, now, shown)
  if not buckets then return first end
  local reply = { 'decided', call.id, now, shown }
  for _, act in ipairs(call.acts) do
    local bucket = buckets[act.bucket]
    reply[#reply + 1] = bucket.unreadable and 0 or act_on(bucket, act, call.buckets[act.bucket].full, now)
    if act.ended or act.grant and not act.renew and (act.more or 0) <= 0 then bucket.freed = true end
  end
  for _, bucket in ipairs(buckets) do
    if bucket.changed then save(bucket, shown) end
    if bucket.changed and bucket.freed then redis.call('HSET', bucket.key, 'f', string.format('%.0f', now)) end
  end
  return answer(keys[2], reply)
end

return carry_out(KEYS, call_of(ARGV[1]))
"""

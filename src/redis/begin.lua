-- Begins an epoch where none stands, or in place of the one that the caller found. KEYS: key of the epoch, then of each bucket.
-- ARGV[1]: the call as JSON:
-- id: id of the new epoch, which is begun once. owner: who begins epochs here. instead: id of the epoch that was found.
-- cap, until and buckets: as in reserve.lua. most: as in epoch.lua.
-- seeds: for each bucket its state now, as the store knows it under that very definition: hold (us from now) and for each rule
-- debt (for a concurrency: places), slots and spent (empty: the rule has none).
-- delay: us by which Redis may have granted later what is in the seeds.
-- Returns 'begun', the id and when it began. If it did nothing: 'owned', the id and the owner of the epoch that stands; 'lost', the
-- id and the epoch that stands; 'late', the id and times. Definitions are the caller's, whatever stood there before.

-- Returns a window's steps, counted by another clock, as steps by this one: a unit of one step there may belong to the next newer
-- step here, so it is moved there and not dropped too early.
local function shifted(parts)
  local slots = {}
  for k = 1, PARTS + 1 do slots[k] = 0 end
  for k, units in ipairs(parts) do
    local to = math.max(1, k - 1)
    slots[to] = math.min(slots[to] + units, MOST)
  end
  return slots
end

-- Returns the time at which a bucket goes on: late enough that a grant that came late has drained, too. A quota that has begun a
-- period by the other clock does not go back to the one before.
local function goes_on(rules, seed, from)
  local at = from
  for i, rule in ipairs(rules) do
    if rule.periods then at = math.max(at, seed.spent[i] and seed.spent[i][2] or 0) end
  end
  return at
end

-- Returns how many units a seed counts, under the rule that counts most.
local function counted(rules, seed)
  local most = 0
  for i, rule in ipairs(rules) do
    local units = 0
    for _, part in ipairs(seed.slots[i]) do units = units + part end
    if rule.periods then units = seed.spent[i][5] or 0 end
    if is_flow(rule) and rule.slot == 0 and not rule.periods then units = math.ceil(seed.debt[i] / rule.weight) end
    most = math.max(most, units)
  end
  return math.min(most, MOST)
end

-- Writes a bucket afresh from its seed. Records what was granted before as one grant with the epoch's id: so what turns out to be
-- unused of it can be given back.
local function plant(key, definition, seed, call, epoch, shown)
  -- Deletes it by a command that every user of the scripts may send.
  redis.call('PEXPIRE', key, '0')
  local at = goes_on(definition.rules, seed, epoch.at + call.delay)
  local bucket = read(key, definition, nil, at)
  bucket.stored, bucket.lost, bucket.ahead = true, at, at
  bucket.hold = math.max(epoch.at + seed.hold, at)
  for i, rule in ipairs(definition.rules) do
    if rule.slot > 0 then
      bucket.slots[i] = shifted(seed.slots[i])
    elseif rule.periods then
      if #seed.spent[i] > 0 then bucket.spent[i] = seed.spent[i] end
    elseif is_flow(rule) then
      bucket.debt[i] = seed.debt[i]
    else
      bucket.running = math.max(bucket.running, seed.debt[i])
    end
  end
  close(bucket, epoch)
  -- A bucket of Sluice's own is whole by its seed, even if other programs take from it later.
  bucket.closed = epoch.at
  local units = counted(definition.rules, seed)
  if units > 0 then remember(bucket, at, call.id, units, 0) end
  save(bucket, shown)
end

local function begin(keys, call)
  local stands, of, at, owner = unpack(redis.call('HMGET', keys[1], 'id', 'history', 'at', 'owner'))
  if stands and owner and owner ~= call.owner then return { 'owned', call.id, owner } end
  if stands == call.id and of == history() then return { 'begun', call.id, tonumber(at) } end
  if stands and (stands == call.id or stands ~= call.instead) then return { 'lost', call.id, stands } end
  local now, shown = clock(call.cap)
  if shown > call['until'] then return { 'late', call.id, now, shown } end
  local epoch = { at = now, most = call.most }
  for i, definition in ipairs(call.buckets) do
    plant(keys[1 + i], definition, call.seeds[i], call, epoch, shown)
  end
  redis.call('HSET', keys[1], 'id', call.id, 'history', history(), 'at', string.format('%.0f', now), 'most',
    string.format('%.0f', call.most), 'owner', call.owner)
  return { 'begun', call.id, now }
end

return begin(KEYS, cjson.decode(ARGV[1]))

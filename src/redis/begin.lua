-- Begins an epoch where none is in force, or in place of the one that the caller found. The definitions are the caller's, whatever was
-- there before. KEYS: key of the epoch, then of each bucket. ARGV[1]: the call as JSON:
-- id: id of the new epoch, which is begun once.
-- owner: who begins epochs here.
-- stores: number of databases that do; unset: one.
-- instead: id of the epoch that was found.
-- cap, until, buckets: as in reserve.lua.
-- most: as in epoch.lua.
-- seeds: for each bucket its state now, as the store knows it under that very definition: hold (us from now) and for each rule debt (for a
-- concurrency: places), parts and spent (empty: the rule has none).
-- delay: us by which Redis may have granted later what is in the seeds.
-- follows, goes_on: portions of the seeds were sent before, or follow. From the first to the last no epoch is in force, so nothing is
-- granted. Meanwhile the key has history, at, owner and stores of the epoch, begins (its id), and reached (when the newest portion came).
-- Returns 'begun', the id and when it began; 'portion' with the same if others follow. If it did nothing: 'owned', the id and the owner of
-- the epoch in force; 'lost', the id and the epoch in force; 'late', the id and times.

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
      bucket.parts[i] = shifted(seed.parts[i])
    elseif rule.periods then
      if #seed.spent[i] > 0 then bucket.spent[i] = seed.spent[i] end
      bucket.spent[i][8] = calendar_of(rule)
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

-- Another database may begin an epoch when one has not gone on with its own for so many us.
local PATIENCE = 10000000

local function begin(keys, call)
  local stands, of, at, owner, standing, begins, reached =
    fields_of(keys[1], 'id', 'history', 'at', 'owner', 'stores', 'begins', 'reached')
  local stores = call.stores or 1
  local is_alone = math.min(stores, tonumber(standing or 1)) == 1
  local is_others = owner and owner ~= call.owner
  if (stands or begins) and is_others and is_alone then return { 'owned', call.id, owner } end
  if stands == call.id and of == history() then return { 'begun', call.id, tonumber(at) } end
  if stands and (stands == call.id or stands ~= call.instead) then return { 'lost', call.id, stands } end
  local now, shown = clock(call.cap)
  if shown > call['until'] then return { 'late', call.id, now, shown } end
  if call.follows then
    if begins ~= call.id or of ~= history() then return { 'lost', call.id, stands or '' } end
    now = tonumber(at)
  elseif begins and is_others and math.abs(shown - tonumber(reached)) < PATIENCE then
    return { 'lost', call.id, '' }
  end
  local epoch = { at = now, most = call.most, stores = stores, lacks = stores > 1 }
  for i, definition in ipairs(call.buckets) do
    plant(keys[1 + i], definition, call.seeds[i], call, epoch, shown)
  end
  if call.goes_on then
    if not call.follows then redis.call('PEXPIRE', keys[1], '0') end
    redis.call('HSET', keys[1], 'begins', call.id, 'history', history(), 'at', string.format('%.0f', now), 'owner', call.owner,
      'stores', stores, 'reached', string.format('%.0f', shown))
    return { 'portion', call.id, now }
  end
  -- The databases that took part in the epoch before have to join this one. The key is deleted by a command that every user may send.
  redis.call('PEXPIRE', keys[1], '0')
  redis.call('HSET', keys[1], 'stores', stores, 'joined', 1, 'o:' .. call.owner, call.id, 'm:' .. call.id, 1)
  redis.call('HSET', keys[1], 'id', call.id, 'history', history(), 'at', string.format('%.0f', now), 'most',
    string.format('%.0f', call.most), 'owner', call.owner)
  return { 'begun', call.id, now }
end

return begin(KEYS, call_of(ARGV[1]))

-- Lets a database take part in the epoch that another one began, and adds what its ledger has to the buckets, once in an epoch. KEYS: key
-- of the epoch, then of each bucket. ARGV[1]: the call as JSON:
-- id: id under which it takes part from now on.
-- owner, stores, cap, until, buckets, seeds, delay: as in begin.lua.
-- joins: id of the epoch.
-- instead: id under which the database took part before, which ends: its grants are part of the state. Unset: it took no part.
-- goes_on: more seeds follow; it takes part only after the last.
-- Returns 'decided', the id and times. If it did nothing: 'owned', the id and the owner of the epoch when all places are taken; 'lost', the
-- id and the epoch in force; 'late'; or what `open` returns.

-- Adds the units of a quota's periods, each to the same period here.
local function add_spent(spent, seed)
  for k = 1, 3 do
    for n = 1, 3 do
      if seed[n] and seed[n] > 0 and seed[n] == spent[k] then spent[3 + k] = spent[3 + k] + seed[3 + n] end
    end
  end
end

-- Returns a debt with that of another ledger: never more than a full bucket, except for what either owes beyond it.
local function owed_by_both(rule, debt, other)
  return math.max(debt, other, math.min(debt + other, rule.room * rule.weight))
end

-- Adds a seed to a bucket, once in an epoch: an earlier call may have failed after some of its portions. The bucket's time moves on far
-- enough that a grant which Redis gave late counts, too.
local function add(bucket, seed, call, now, shown)
  local mark = 'j' .. call.owner
  if redis.call('HGET', bucket.key, mark) == call.joins then return end
  advance(bucket, goes_on(bucket.rules, seed, now + call.delay))
  bucket.lost, bucket.ahead = math.max(bucket.lost, bucket.at), math.max(bucket.ahead, bucket.at)
  bucket.hold = math.max(bucket.hold, now + seed.hold)
  for i, rule in ipairs(bucket.rules) do
    if rule.slot > 0 then
      for k, units in ipairs(shifted(seed.parts[i])) do
        bucket.parts[i][k] = math.min(bucket.parts[i][k] + units, MOST)
      end
    elseif rule.periods then
      add_spent(bucket.spent[i], seed.spent[i])
    elseif is_flow(rule) then
      bucket.debt[i] = owed_by_both(rule, bucket.debt[i], seed.debt[i])
    end
  end
  local units = counted(bucket.rules, seed)
  if units > 0 then remember(bucket, bucket.at, call.id, units, 0) end
  save(bucket, shown)
  redis.call('HSET', bucket.key, mark, call.joins)
end

local function join(keys, call)
  local mine = 'o:' .. call.owner
  local stands, of, stores, joined, was, owner =
    fields_of(keys[1], 'id', 'history', 'stores', 'joined', mine, 'owner')
  if not stands or stands ~= call.joins or of ~= history() then return { 'lost', call.id, stands or '' } end
  local now, shown = clock(call.cap)
  local places = math.max(tonumber(stores), was and call.stores or 0)
  if was ~= call.id then
    if was ~= (call.instead or false) then return { 'lost', call.id, stands } end
    if not was and tonumber(joined) >= places then return { 'owned', call.id, owner } end
    if call['until'] and shown > call['until'] then return { 'late', call.id, now, shown } end
    local epoch = whole(keys[1], {})
    local buckets, first = open(keys, call, epoch, now, shown, now + call.delay)
    if not buckets then return first end
    for i, bucket in ipairs(was and {} or buckets) do
      if not bucket.unreadable then add(bucket, call.seeds[i], call, now, shown) end
    end
    if call.goes_on then return { 'decided', call.id, now, shown } end
    if was then redis.call('HDEL', keys[1], 'm:' .. was) end
    redis.call('HSET', keys[1], mine, call.id, 'm:' .. call.id, 1, 'joined', tonumber(joined) + (was and 0 or 1))
  end
  redis.call('HSET', keys[1], 'stores', places)
  return { 'decided', call.id, now, shown }
end

return join(KEYS, call_of(ARGV[1]))

-- The arithmetic of limits/decide.ts on one bucket, in integers below 2^53; changes the bucket in place.
-- A bucket: at, hold, running (places taken) and, a rule each, debt (of rates), slots (of windows, the newest part first) and
-- spent (of quotas: before, start, ends, previous, current, next, margin). rules: drain, weight, room, slot, span as in
-- limits/rule.ts, of a quota also margin and periods: lists of boundaries of its calendar, around times that are asked about.
local PARTS = 60
local NEVER = 9007199254740991
local MOST = 2147483647

local function is_flow(rule)
  return rule.drain > 0
end

local function drained(debt, drain, us)
  if us > math.floor(debt / drain) then return 0 end
  return debt - drain * us
end

-- The parts of a window as seen later: new ones at the front, as many forgotten at the end.
local function aged(slots, slot, from, to)
  local by = math.min(PARTS + 1, math.floor(to / slot) - math.floor(from / slot))
  if by == 0 then return slots end
  local seen = {}
  for k = 1, PARTS + 1 do seen[k] = k > by and slots[k - by] or 0 end
  return seen
end

-- The boundaries around the period that holds this time: where the one before it, it, and the one after it begin, and that ends.
-- nil: they are not known.
local function period_at(periods, at)
  for _, list in ipairs(periods) do
    for i = 2, #list - 2 do
      if at >= list[i] and at < list[i + 1] then return list[i - 1], list[i], list[i + 1], list[i + 2] end
    end
  end
  return nil
end

local function begun(rule, at)
  local before, start, ends = period_at(rule.periods, at)
  return { before, start, ends, 0, 0, 0, rule.margin }
end

-- The periods of a quota as seen later. A period that ended before the boundaries begin is not the one before this.
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

-- After so many units more (or less) at a time: they count in each period that is less than a margin away.
local function spend(rule, spent, at, units)
  local before, start, ends, margin = spent[1], spent[2], spent[3], rule.margin
  if at >= before - margin and at < start + margin then spent[4] = math.max(0, spent[4] + units) end
  if at >= start - margin and at < ends + margin then spent[5] = math.max(0, spent[5] + units) end
  if at >= ends - margin and (units > 0 or at < ends + margin) then spent[6] = math.max(0, spent[6] + units) end
end

local function blank(rules, at)
  local bucket = { at = at, hold = 0, running = 0, debt = {}, slots = {}, spent = {} }
  for i, rule in ipairs(rules) do
    bucket.debt[i], bucket.slots[i], bucket.spent[i] = 0, {}, {}
    if rule.slot > 0 then
      for k = 1, PARTS + 1 do bucket.slots[i][k] = 0 end
    elseif rule.periods then
      bucket.spent[i] = { 0, 0, 0, 0, 0, 0, rule.margin }
    end
  end
  return bucket
end

-- Drains a bucket to `now`; time never goes backwards for it.
local function advance(bucket, now)
  local at = math.max(now, bucket.at)
  for i, rule in ipairs(bucket.rules) do
    if rule.slot > 0 then
      bucket.slots[i] = aged(bucket.slots[i], rule.slot, bucket.at, at)
    elseif rule.periods then
      bucket.spent[i] = rolled(rule, bucket.spent[i], at)
    elseif is_flow(rule) then
      bucket.debt[i] = drained(bucket.debt[i], rule.drain, at - bucket.at)
    end
  end
  bucket.at = at
end

-- What a grant now has to fit on top of, under the rule at `i`.
local function owed(bucket, i)
  local rule = bucket.rules[i]
  if not is_flow(rule) then return bucket.running * rule.weight end
  if rule.slot > 0 then
    local sum = 0
    for k = 1, PARTS + 1 do sum = sum + bucket.slots[i][k] end
    return sum
  end
  if not rule.periods then return bucket.debt[i] end
  local _, start, ends, previous, current, following = unpack(bucket.spent[i])
  if bucket.at < start + rule.margin then return math.max(current, previous) end
  if bucket.at < ends - rule.margin then return current end
  return math.max(current, following)
end

-- Units free by what counts units, and places by concurrency, which one more request of a running job does not count in.
local function free(bucket, further)
  local units, places = MOST, MOST
  for i, rule in ipairs(bucket.rules) do
    local left = math.floor((rule.room * rule.weight - owed(bucket, i)) / rule.weight)
    if is_flow(rule) then
      units = math.min(units, left)
    elseif not further then
      places = math.min(places, left)
    end
  end
  if bucket.hold > bucket.at then units = 0 end
  return math.max(0, units), math.max(0, places)
end

-- When `need` units are free under the rule at `i`, of those that may never be more than it holds.
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
      kept = kept + bucket.slots[i][oldest]
    until kept > rule.room - fits
    return (math.floor(bucket.at / rule.slot) - oldest + PARTS + 2) * rule.slot
  end
  if not rule.periods then return bucket.at + math.ceil(missing / rule.drain) end
  local spent = bucket.spent[i]
  if spent[6] + fits > rule.room then return select(4, period_at(rule.periods, bucket.at)) + rule.margin end
  return (spent[5] + fits > rule.room and spent[3] or spent[2]) + rule.margin
end

-- When `need` units are free, and a place.
local function next_at(bucket, now, further, need)
  local at = math.max(now, bucket.hold)
  for i, rule in ipairs(bucket.rules) do
    if is_flow(rule) or not further then at = math.max(at, free_at(bucket, i, need)) end
  end
  return at
end

-- Counts units in the part of a window that a time is in; a part that is over counts no more.
local function count(bucket, i, at, units)
  local slot = bucket.rules[i].slot
  local part = math.floor(bucket.at / slot) - math.floor(at / slot) + 1
  if part < 1 or part > PARTS + 1 then return end
  bucket.slots[i][part] = math.min(math.max(0, bucket.slots[i][part] + units), MOST)
end

-- Answers the places that were taken: none where nothing counts them.
local function charge(bucket, units, places)
  local taken = 0
  for i, rule in ipairs(bucket.rules) do
    if not is_flow(rule) then
      taken = places
    elseif rule.slot > 0 then
      count(bucket, i, bucket.at, units)
    elseif rule.periods then
      spend(rule, bucket.spent[i], bucket.at, units)
    else
      bucket.debt[i] = bucket.debt[i] + units * rule.weight
    end
  end
  bucket.running = bucket.running + taken
  return taken
end

-- What a rate owes at `at` when its bucket was empty before these grants (each: at, units, given back).
local function replayed(rule, entries, from, at)
  local debt, seen = 0, from
  for _, entry in ipairs(entries) do
    debt = drained(debt, rule.drain, math.max(0, entry[1] - seen)) + (entry[2] - entry[3]) * rule.weight
    seen = math.max(seen, entry[1])
  end
  return drained(debt, rule.drain, at - seen)
end

-- `more` units than were granted at `granted` were used (negative: fewer). since: what else was granted after them; nil: all
-- of it counts at once, as more does, and fewer where the vendor itself refunds.
local function settle(bucket, granted, more, since)
  for i, rule in ipairs(bucket.rules) do
    if rule.slot > 0 then
      local oldest = (math.floor(bucket.at / rule.slot) - PARTS) * rule.slot
      count(bucket, i, more > 0 and math.max(granted, oldest) or granted, more)
    elseif rule.periods then
      spend(rule, bucket.spent[i], granted, more)
    elseif is_flow(rule) then
      local floor = since and replayed(rule, since, granted, bucket.at) or 0
      bucket.debt[i] = math.max(bucket.debt[i] + more * rule.weight, floor)
    end
  end
end

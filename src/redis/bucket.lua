-- The arithmetic of limits/decide.ts on one bucket, in integers below 2^53; changes the bucket in place.
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

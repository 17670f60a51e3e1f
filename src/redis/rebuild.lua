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

-- Reads what a ledger has, for an epoch that begins or that a database joins.

-- Returns a window's parts, counted by another clock, as parts by this one: a unit of one part there may belong to the next newer
-- part here, so it is moved there and not dropped too early.
local function shifted(parts)
  local moved = {}
  for k = 1, PARTS + 1 do moved[k] = 0 end
  for k, units in ipairs(parts) do
    local to = math.max(1, k - 1)
    moved[to] = math.min(moved[to] + units, MOST)
  end
  return moved
end

-- Returns the time from which a bucket counts: late enough that a grant which Redis gave late has drained, too. A quota
-- that has begun a period by the other clock does not go back to the period before.
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
    for _, part in ipairs(seed.parts[i]) do units = units + part end
    if rule.periods then units = seed.spent[i][5] or 0 end
    if is_flow(rule) and rule.slot == 0 and not rule.periods then units = math.ceil(seed.debt[i] / rule.weight) end
    most = math.max(most, units)
  end
  return math.min(most, MOST)
end

-- Returns what buckets allow now, as text; writes nothing to them. KEYS: the epoch's, then of each bucket. ARGV[1]: as of a reserve, and need:
-- for how many units of each bucket the hint is computed. Where nothing of a bucket should matter any more, and its key might have expired,
-- the script treats it as expired: the histories show whether that makes a difference.
save = function() end

local function text(list)
  local words = {}
  for i, one in ipairs(list) do words[i] = type(one) == 'table' and text(one) or string.format('%.0f', one) end
  return '{' .. table.concat(words, ',') .. '}'
end

local function line(bucket, now, need)
  local debt, parts, spent, windows, quotas = {}, {}, {}, false, false
  for i, rule in ipairs(bucket.rules) do
    debt[i] = owed(bucket, i)
    windows, quotas = windows or rule.slot > 0, quotas or rule.periods ~= nil
    parts[i], spent[i] = {}, { 0, 0, 0, 0, 0, 0 }
    for k = 1, PARTS + 1 do parts[i][k] = rule.slot > 0 and bucket.parts[i][k] or 0 end
    for k = 1, rule.periods and 6 or 0 do spent[i][k] = bucket.spent[i][k] end
  end
  local units, places = free(bucket, false)
  return string.format('at %.0f debt %s parts %s quota %s hold %.0f avail %.0f units %.0f places %.0f next %.0f', bucket.at,
    text(debt), windows and text(parts) or '', quotas and text(spent) or '', bucket.hold > bucket.at and bucket.hold or 0,
    math.min(units, places), units, places, next_at(bucket, now, false, need))
end

local call = cjson.decode(ARGV[1])
local now, shown = clock()
local epoch, lost = whole(KEYS[1], call)
if not epoch then return lost end
local buckets, reply = open(KEYS, call, epoch, now, shown)
if not buckets then return reply end
reply = { 'decided' }
for i, bucket in ipairs(buckets) do
  bucket.keep = 0
  if bucket.stored and now > (matters_until(bucket) or NEVER) then
    local fresh = blank(bucket.rules, bucket.at)
    for _, field in ipairs({ 'hold', 'debt', 'parts', 'spent' }) do bucket[field] = fresh[field] end
    redis.call('INCR', 'test:expired')
  end
  advance(bucket, now)
  reply[i + 1] = line(bucket, now, call.need[i])
end
return reply

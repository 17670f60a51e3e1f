-- What became of grants. KEYS: of the answer, then of each bucket. ARGV[1]: the call as JSON: id, cap and buckets as for a
-- reserve (of a bucket also full: its vendor itself refunds), and acts, each of one bucket (1: the first):
-- grant and more: of that grant so many units more were used than granted (negative: fewer); ended: so many places are free
-- again; hold: no grant for so many us from now.
-- The same id is carried out once. Answers 'decided', the id, the time, and of each act what it came to: units charged (negative:
-- given back), places freed, the time until which it is held; or what `open` says.

-- Given back: as if it had not been granted, with what was granted since. Of a grant that is not remembered, or was granted
-- under another definition, nothing is.
local function refund(bucket, id, units, full)
  local entry, n = grant_of(bucket, id)
  if not entry or entry[4] ~= bucket.version then return 0 end
  units = math.min(units, entry[2] - entry[3])
  if units < 1 then return 0 end
  settle(bucket, entry[1], -units, not full and grants(bucket, n + 1) or nil)
  entry[3] = entry[3] + units
  write_grant(bucket, n, entry)
  return -units
end

-- Used beyond a grant: a debt. Of a grant that is not remembered, or took nothing, nobody knows the time: it counts now.
local function overrun(bucket, id, units, now)
  advance(bucket, now)
  local entry = grant_of(bucket, id)
  settle(bucket, entry and entry[2] > 0 and entry[1] or bucket.at, units)
  remember(bucket, '', units)
  return units
end

-- Counted from the bucket's own time, so that a clock which stepped back cannot make it end before it began.
local function hold(bucket, us, now)
  local at = math.max(now, bucket.at)
  if at + us > bucket.hold then
    advance(bucket, now)
    bucket.hold = at + us
  end
  return bucket.hold
end

local function release(bucket, places)
  local freed = math.min(places, bucket.running)
  bucket.running = bucket.running - freed
  return freed
end

local function act_on(bucket, act, full, now)
  if act.hold then return hold(bucket, act.hold, now) end
  if act.ended then return release(bucket, act.ended) end
  if act.more > 0 then return overrun(bucket, act.grant, act.more, now) end
  return refund(bucket, act.grant, -act.more, full)
end

local function carry_out(keys, call)
  local given = answered(keys[1])
  if given then return given end
  local now, shown = clock(call.cap)
  local buckets, first = open(keys, call, now, shown)
  if not buckets then return first end
  local changed, reply = {}, { 'decided', call.id, now }
  for _, act in ipairs(call.acts) do
    local came = act_on(buckets[act.bucket], act, call.buckets[act.bucket].full, now)
    if came ~= 0 then changed[act.bucket] = true end
    reply[#reply + 1] = came
  end
  for i in pairs(changed) do save(buckets[i], shown) end
  return answer(keys[1], reply)
end

return carry_out(KEYS, cjson.decode(ARGV[1]))

-- Grants what fits. KEYS: key of the epoch, of the reply, then of each bucket. ARGV[1]: the call as JSON:
-- id: id of the grant; the same id gets the same reply. epoch: the one that the caller knows. cap: the latest time that Redis's clock
-- can show, by the caller's monotonic clock. until: the call is too late when Redis's clock shows more.
-- further: one more request of a running job, which takes no place of concurrency. ahead: what fits within this time (us) is granted now,
-- for use from then on; unset: only what may be used at once.
-- lease: the places are free again after this time (us, at most a minute) unless the lease is renewed (settle.lua); unset: when the grant
-- ends.
-- epoch, cap, until, further, ahead and lease may be unset.
-- buckets: version, counted, keep (us for which grants are remembered) and rules of each. items: want, and takes: pairs
-- of a bucket (1: the first) and units; each of the `want` gets the units of all its buckets, or nothing.
-- Returns 'decided', the id (a client may mix up replies when one is lost on the way), the time, what the clock shows, and for each
-- item: how many of the `want` were granted; after how many us to send the rest again (0: all were granted); which bucket is the last
-- to have room (0: none lacks it); with ahead also after how many us the grants may be used, and 1 if the bucket that lacks room is
-- closed or held, else 0. Or 'lost', the id and the epoch that stands; or 'late', the id and times; or what `open` returns.

-- Grants reach no further ahead than this (us): until that time, a caller without `ahead` is denied.
local AHEAD = 100000

-- Returns how many of an item fit into its buckets. An item that takes no units still waits while nothing is free.
local function fitting(buckets, item, further)
  local fits = item.want
  for _, take in ipairs(item.takes) do
    local units, places = free(buckets[take[1]], further)
    local by = MOST
    if units == 0 then by = 0 elseif take[2] > 0 then by = math.floor(units / take[2]) end
    fits = math.min(fits, by, places)
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

-- Returns how many of an item are granted, and when they may be used: the most that fit at one moment, no later than `latest`. One
-- moment, because units counted at several moments may all be used at the last of them; so what fits at once may wait for the others.
local function reach(buckets, item, now, latest, further)
  local at = now
  for _, take in ipairs(item.takes) do at = math.max(at, buckets[take[1]].ahead) end
  if at > latest then return 0, at end
  local fit = fitting(buckets, item, further)
  if latest == now then return fit, at end
  -- Mostly all fit, or not even one more: so those two are tried first.
  local too_many, try, after = item.want + 1, item.want, fit + 1
  while too_many - fit > 1 do
    local by = fits_at(buckets, item, now, further, try)
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

-- Grants what fits of an item. Returns how many, and when they may be used. Adds to `granted`, for each bucket, the units at each time
-- that they are granted for, and the places.
local function grant(buckets, item, now, latest, further, granted)
  local fits, at = reach(buckets, item, now, latest, further)
  if fits == 0 then return 0, now end
  for _, take in ipairs(item.takes) do
    local i, units = take[1], fits * take[2]
    local bucket, parts = buckets[i], granted[i] or { places = 0 }
    if at > now then
      advance(bucket, at)
      bucket.ahead = at
    end
    parts.places = parts.places + charge(bucket, units, further and 0 or fits)
    if #parts == 0 or parts[#parts].at < bucket.at then parts[#parts + 1] = { at = bucket.at, units = 0 } end
    parts[#parts].units = parts[#parts].units + units
    granted[i] = parts
  end
  return fits, at
end

local function decide(buckets, call, now, granted)
  local reply, latest = {}, now + math.min(call.ahead or 0, AHEAD)
  for _, item in ipairs(call.items) do
    local fits, at = grant(buckets, item, now, latest, call.further, granted)
    local wait, last = 0, 0
    if fits < item.want then wait, last = delay(buckets, item, now, latest, call.further) end
    local told = { fits, wait, last }
    if call.ahead then told[4], told[5] = at - now, last > 0 and math.max(buckets[last].hold, buckets[last].shut, buckets[last].ahead) > latest and 1 or 0 end
    for _, value in ipairs(told) do reply[#reply + 1] = value end
  end
  return reply
end

local function reserve(keys, call)
  local epoch, lost = whole(keys[1], call)
  if not epoch then return lost end
  local now, shown = clock(call.cap)
  local given = answered(keys[2], call, now, shown)
  if given then return given end
  local buckets, first = open(keys, call, epoch, now, shown, now + math.min(call.ahead or 0, AHEAD))
  if not buckets then return first end
  for _, bucket in ipairs(buckets) do advance(bucket, now) end
  local granted, reply = {}, { 'decided', call.id, now, shown }
  for _, value in ipairs(decide(buckets, call, now, granted)) do reply[#reply + 1] = value end
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

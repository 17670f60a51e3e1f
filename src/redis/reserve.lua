-- Grants what fits. KEYS: key of the epoch, of the reply, then of each bucket. ARGV[1]: the call as JSON (epoch, cap, until, further,
-- ahead, lease and after may be unset):
-- id: id of the grant; the same id gets the same reply.
-- epoch: the one that the caller knows.
-- cap: the latest time that Redis's clock can show, by the caller's monotonic clock.
-- until: the call is too late when Redis's clock shows more.
-- further: one more request of a running job, which takes no place of concurrency.
-- ahead: what fits within this time (us) is granted now, for use from then on; unset: only what may be used at once. Calls without it come
-- from other programs: for a while after them nothing is granted ahead, because they would not find room.
-- lease: the places are free again after this time (us, at most a minute) unless the lease is renewed (settle.lua); unset: when the grant
-- ends.
-- buckets: for each its version, counted, keep (us for which grants are remembered) and rules.
-- items: for each
--   want: how many times it is wanted. Each gets the units of all its buckets, or nothing.
--   takes: pairs of a bucket (1: the first) and units.
--   after: they may not be used before this time (us), from which `ahead` counts; unset: now.
-- Returns 'decided', the id (a client may mix up replies when one is lost on the way), the time, what the clock shows, and for each item:
-- - how many of the `want` were granted;
-- - after how many us to send the rest again (0: all were granted);
-- - which bucket is the last to have room (0: none lacks it);
-- - with ahead: after how many us the grants may be used; why that bucket denies (1: it is closed or held, 2: other programs have called
--   lately, 3: it has granted for later times already, 0: its units are used); for how many us it has granted nothing and got nothing back.
-- At last the buckets whose keys have a value of another program: they are held for a minute.
-- Or 'lost', the id and the epoch in force; or 'late', the id and times; or what `open` returns.

-- Grants reach no further ahead than this (us), beyond the time from which they are wanted: until then a caller without `ahead` is denied.
local AHEAD = 200000
-- They are wanted no later than this (us) from now.
local AFTER = 250000
-- Nothing is granted ahead for so long (us) after a call of another program.
local OTHERS = 10000000

-- Returns how many of an item fit into its buckets. An item that takes no units still waits while nothing is free.
local function fitting(buckets, item, further)
  local fits, takes = item.want, item.takes
  for k = 1, #takes do
    local take = takes[k]
    local units, places = free(buckets[take[1]], further)
    if units == 0 then fits = 0 elseif take[2] > 0 then fits = math.min(fits, math.floor(units / take[2])) end
    if places < fits then fits = places end
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

-- Returns from when an item is wanted, the latest time that it is granted for, and the last of its buckets that other programs take from
-- (0: none).
local function times_of(buckets, item, now, call)
  local others, takes = 0, item.takes
  for k = 1, #takes do
    if buckets[takes[k][1]].others > now then others = takes[k][1] end
  end
  local from = now + math.min(item.after or 0, AFTER)
  return from, others > 0 and now or from + math.min(call.ahead or 0, AHEAD), others
end

-- Returns how many of an item are granted, and when they may be used: the most that fit at one moment from `from` to `latest`. One
-- moment, because units counted at several moments may all be used at the last of them; so what fits at once may wait for the others.
local function reach(buckets, item, now, from, latest, further)
  local at, takes = from, item.takes
  for k = 1, #takes do at = math.max(at, buckets[takes[k][1]].ahead) end
  if at > latest then return 0, at end
  local fit = fitting(buckets, item, further)
  if latest == now then return fit, at end
  -- Mostly all fit, or not even one more: so those two are tried first.
  local too_many, try, after = item.want + 1, item.want, fit + 1
  while too_many - fit > 1 do
    local by = fits_at(buckets, item, from, further, try)
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

-- Grants what fits of an item from `from` to `latest`. Returns how many, and when they may be used. Adds to `granted`, for each bucket,
-- the units at each time that they are granted for, and the places.
local function grant(buckets, item, now, from, latest, further, granted)
  local fits, at = reach(buckets, item, now, from, latest, further)
  if fits == 0 then return 0, now end
  local takes = item.takes
  for k = 1, #takes do
    local i, units = takes[k][1], fits * takes[k][2]
    local bucket, parts = buckets[i], granted[i]
    if at > now then
      advance(bucket, at)
      bucket.ahead = at
    end
    bucket.moved = now
    local places = charge(bucket, units, further and 0 or fits)
    if not parts then
      granted[i] = { { at = bucket.at, units = units }, places = places }
    else
      parts.places = parts.places + places
      if parts[#parts].at < bucket.at then parts[#parts + 1] = { at = bucket.at, units = 0 } end
      parts[#parts].units = parts[#parts].units + units
    end
  end
  return fits, at
end

-- Returns why a bucket denies an item that is wanted from `from` on, as the reply has it.
local function cause_of(bucket, now, from, latest)
  if math.max(bucket.hold, bucket.shut) > latest then return 1 end
  if bucket.others > now and from > now then return 2 end
  return bucket.ahead > latest and 3 or 0
end

local function decide(buckets, call, now, granted, reply)
  local items, n = call.items, #reply
  for k = 1, #items do
    local item = items[k]
    local from, latest, others = times_of(buckets, item, now, call)
    local fits, at = grant(buckets, item, now, from, latest, call.further, granted)
    local wait, last = 0, 0
    if fits < item.want then
      wait, last = delay(buckets, item, now, latest, call.further)
      if others > 0 and from > now then last = others end
    end
    reply[n + 1], reply[n + 2], reply[n + 3], n = fits, wait, last, n + 3
    if call.ahead then
      local lacking = buckets[last]
      reply[n + 1], reply[n + 2] = at - now, lacking and cause_of(lacking, now, from, latest) or 0
      reply[n + 3], n = lacking and math.max(0, now - lacking.moved) or 0, n + 3
    end
  end
end

-- Returns the last time for which a call may be granted anything.
local function horizon(call, now)
  local after = 0
  for _, item in ipairs(call.items) do after = math.max(after, item.after or 0) end
  return now + math.min(after, AFTER) + math.min(call.ahead or 0, AHEAD)
end

-- Reads until when nothing is granted ahead; if the call is another program's, writes it for each bucket that has a state. The state
-- itself stays, because a denied bucket is not written.
local function heed_others(buckets, call, now)
  for _, bucket in ipairs(buckets) do
    if not call.ahead and bucket.stored and bucket.others < now + OTHERS / 2 then
      redis.call('HSET', bucket.key, 'o', string.format('%.0f', now + OTHERS))
    end
  end
end

local function reserve(keys, call)
  local epoch, lost = whole(keys[1], call)
  if not epoch then return lost end
  local now, shown = clock(call.cap)
  local given = answered(keys[2], call, now, shown)
  if given then return given end
  local buckets, first = open(keys, call, epoch, now, shown, horizon(call, now))
  if not buckets then return first end
  heed_others(buckets, call, now)
  for _, bucket in ipairs(buckets) do advance(bucket, now) end
  local granted, reply = {}, { 'decided', call.id, now, shown }
  decide(buckets, call, now, granted, reply)
  for i, bucket in ipairs(buckets) do
    if bucket.unreadable then reply[#reply + 1] = i end
  end
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

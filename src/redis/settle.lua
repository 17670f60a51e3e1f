-- Records what happened to grants. KEYS: key of the epoch, of the reply, then of each bucket. ARGV[1]: the call as JSON:
-- id: id of this call, which is carried out once.
-- epoch, cap, until, buckets: as in reserve.lua (`full`: the bucket's vendor itself refunds).
-- acts: in order, each on one bucket (1: the first):
--   grant, more: the grant used `more` units than granted (negative: fewer).
--   grant alone: nothing of it was used, so its places are free, too.
--   more alone: so many units count from now on, for a request that may have arrived late; quotas do not count it again.
--   ended: number of places that are free again, of that grant (unset: the grant is not known).
--   renew: the grant's lease ends so many us (at most a minute) from now; with places, it has so many from now on, even if its lease had
--   ended.
--   hold: us from now without a grant; 0 ends what such acts hold.
-- Returns 'decided', the id, the time, what the clock shows, and for each act its effect: units charged (negative: given back), places
-- freed, places leased (0: others may have them), or the time until which the bucket is held.
-- Or 'lost', the id and the epoch in force; or 'late', the id and times; or what `open` returns.

-- Frees places that a grant holds, at most `most`. A grant from before places were counted all the time holds none.
local function leave(bucket, id, most)
  local leased = leases_of(bucket)[id]
  if leased then
    local freed = math.min(most, leased[1])
    lease(bucket, id, leased[1] - freed, leased[2])
    bucket.changed = true
    return freed
  end
  local entry, n = grant_of(bucket, id)
  local kept = not entry and redis.call('HGET', bucket.key, 'p' .. id)
  local held, version = 0, 0
  if entry then held, version = entry[6], entry[4] elseif kept then held, version = unpack(cmsgpack.unpack(kept)) end
  if not bucket.counted or version < bucket.counted then return 0 end
  local freed = math.min(most, held, bucket.running)
  if freed == 0 then return 0 end
  ease(bucket)
  bucket.running, bucket.changed = bucket.running - freed, true
  if entry then
    entry[6] = held - freed
    write_grant(bucket, n, entry)
  elseif held > freed then
    redis.call('HSET', bucket.key, 'p' .. id, cmsgpack.pack({ held - freed, version }))
  else
    redis.call('HDEL', bucket.key, 'p' .. id)
  end
  return freed
end

-- Gives units of a grant back, as if they had not been granted; what was granted since counts. Gives back nothing if the grant is not
-- remembered.
local function refund(bucket, id, units, full)
  local first, n = grant_of(bucket, id)
  if not first then return 0 end
  ease(bucket)
  local back, entries = 0, full and parts_of(bucket, first, n) or grants(bucket, n)
  local floors = not full and floors_of(bucket, entries) or {}
  -- The caller does not know which part they belong to. The earliest is safe: the rest is forgotten later, and fewer are credited.
  for k = 1, first[7] or 1 do
    local part = entries[k]
    local some = math.min(units - back, part[2] - part[3])
    if some > 0 then
      settle(bucket, part[1], -some, floors[k])
      part[3], back, bucket.changed = part[3] + some, back + some, true
      write_grant(bucket, n + k - 1, part)
    end
  end
  return -back
end

-- Charges units that were used beyond a grant, as a debt at the time of its last part. If the grant is not remembered, or took nothing,
-- that time is not known: the units count now. So do those of a request that is charged once more (id is nil).
local function overrun(bucket, id, units, now)
  advance(bucket, now)
  local first, n
  if id then first, n = grant_of(bucket, id) end
  local parts = first and parts_of(bucket, first, n) or {}
  local last = parts[#parts]
  settle(bucket, last and last[2] > 0 and last[1] or bucket.at, units, nil, not id)
  remember(bucket, bucket.at, '', units, 0, not id and AGAIN or 1)
  flush(bucket)
  bucket.changed = true
  return units
end

-- Frees places whose grant is not known.
local function release(bucket, places)
  local freed = math.min(places, bucket.running - bucket.leased)
  if freed == 0 then return 0 end
  ease(bucket)
  bucket.running, bucket.changed = bucket.running - freed, true
  return freed
end

-- Renews a lease. Returns how many places it has.
local function renew(bucket, act, now)
  local leased = leases_of(bucket)[act.grant]
  local places = act.places or (leased and leased[1] or 0)
  if places == 0 then return 0 end
  lease(bucket, act.grant, places, math.max(now, bucket.at) + math.min(act.renew, MINUTE))
  bucket.changed = true
  return places
end

-- Holds a bucket: no grant for `us`. Counts from the bucket's own time, so that after a backward step of the clock the hold cannot
-- end before it began. 0 ends such holds, unless what holds the bucket now may be something else: a new epoch, another definition, or
-- an older version of this script.
local function hold(bucket, us, now)
  local packed = redis.call('HGET', bucket.key, 'r')
  local held, without, closed, version = unpack(packed and cmsgpack.unpack(packed) or {})
  local is_known = held == bucket.hold and closed == bucket.closed and version == bucket.version
  local before = is_known and without or bucket.hold
  local from = math.max(now, bucket.at)
  if us > 0 and from + us > bucket.hold then
    advance(bucket, now)
    redis.call('HSET', bucket.key, 'r', cmsgpack.pack({ from + us, before, bucket.closed, bucket.version }))
    bucket.hold, bucket.changed = from + us, true
  elseif us == 0 and is_known then
    bucket.hold, bucket.changed, bucket.freed = before, true, true
  end
  return bucket.hold
end

local function act_on(bucket, act, full, now)
  if act.hold then return hold(bucket, act.hold, now) end
  if act.renew then return renew(bucket, act, now) end
  if act.ended then return act.grant and leave(bucket, act.grant, act.ended) or release(bucket, act.ended) end
  if not act.more then
    leave(bucket, act.grant, MOST)
    return refund(bucket, act.grant, MOST, full)
  end
  if act.more > 0 then return overrun(bucket, act.grant, act.more, now) end
  return refund(bucket, act.grant, -act.more, full)
end

local function carry_out(keys, call)
  local epoch, lost = whole(keys[1], call)
  if not epoch then return lost end
  local now, shown = clock(call.cap)
  local given = answered(keys[2], call, now, shown)
  if given then return given end
  local buckets, first = open(keys, call, epoch, now, shown)
  if not buckets then return first end
  local reply = { 'decided', call.id, now, shown }
  for _, act in ipairs(call.acts) do
    local bucket = buckets[act.bucket]
    reply[#reply + 1] = bucket.unreadable and 0 or act_on(bucket, act, call.buckets[act.bucket].full, now)
    if act.ended or act.grant and not act.renew and (act.more or 0) <= 0 then bucket.freed = true end
  end
  for _, bucket in ipairs(buckets) do
    if bucket.changed then save(bucket, shown) end
    if bucket.changed and bucket.freed then redis.call('HSET', bucket.key, 'f', string.format('%.0f', now)) end
  end
  return answer(keys[2], reply)
end

return carry_out(KEYS, call_of(ARGV[1]))

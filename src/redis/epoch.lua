-- Whether the state is whole. A hash beside the buckets says so, since it is lost with them. id: of the epoch, random. history: of
-- the server's writes, when the epoch began. at: that time, in us. most: a bucket that was not written since then is closed from
-- then on for as long as its rules look back, but for no more us than that. owner: who alone begins epochs here; unset: anybody.
local MINUTE = 60000000

-- The name that the server gives to its history of writes: another one after a restart (whatever it has read from its disk), a
-- failover, or a while as a replica. One that gives none is believed; one that ceases to give it is not.
local function history()
  local told = redis.pcall('INFO', 'replication')
  return type(told) == 'string' and string.match(told, 'master_replid:(%x+)') or ''
end

-- The epoch that stands; or nil, and 'lost', the call's id and the id that stands ('': none), where the state is not whole, or not
-- of the epoch that the caller knows.
local function whole(key, call)
  local id, of, at, most = unpack(redis.call('HMGET', key, 'id', 'history', 'at', 'most'))
  if id and of == history() and (call.epoch or id) == id then return { at = tonumber(at), most = tonumber(most) } end
  return nil, { 'lost', call.id, id or '' }
end

-- For how long what was granted before a time may matter to a rule. What runs has no time; it is given a minute.
local function looks_back(rule, from)
  if not is_flow(rule) then return MINUTE end
  local _, _, ends, following = period_at(rule.periods or {}, from)
  if not ends then return rule.span end
  -- What was granted close to the end counts in the next period, too.
  return (from < ends - rule.margin and ends or following) + rule.margin - from
end

-- A bucket as the epoch leaves it, once: what was granted before is not known, as if it had been forgotten. Of an own one it is
-- known (state.lua), since nobody else takes of it.
local function close(bucket, epoch)
  if bucket.own then bucket.closed = epoch.at end
  if bucket.closed == epoch.at then return end
  local from, span = bucket.stored and math.max(epoch.at, bucket.at) or epoch.at, 0
  for _, rule in ipairs(bucket.rules) do span = math.max(span, looks_back(rule, from)) end
  bucket.closed = epoch.at
  if epoch.most > 0 then bucket.hold = math.max(bucket.hold, from + math.min(span, epoch.most)) end
  if epoch.most >= span then bucket.lost = math.max(bucket.lost, from) end
end

-- Decides whether the state is whole, by a hash beside the buckets, since it is lost with them. Its fields:
-- id: id of the epoch, random. history: the server's history of writes when the epoch began. at: that time, in us.
-- most: a bucket that was not written since then is closed from then on for as long as its rules look back, but no more us than this.
-- owner: the only one that begins epochs here; unset: anybody may.
local MINUTE = 60000000

-- Returns the name that the server gives to its history of writes: it changes after a restart (whatever the server has read from its
-- disk), a failover, or a while as a replica. A server that gives none is trusted; one that ceases to give it is not.
local function history()
  local told = redis.pcall('INFO', 'replication')
  return type(told) == 'string' and string.match(told, 'master_replid:(%x+)') or ''
end

-- Returns the epoch that stands. If the state is not whole, or is not of the epoch that the caller knows: nil, and the reply 'lost',
-- the call's id and the id that stands ('': none).
local function whole(key, call)
  local id, of, at, most = unpack(redis.call('HMGET', key, 'id', 'history', 'at', 'most'))
  if id and of == history() and (call.epoch or id) == id then return { at = tonumber(at), most = tonumber(most) } end
  return nil, { 'lost', call.id, id or '' }
end

-- Returns for how many us after a time the grants before it may matter to a rule. Running jobs have no such time: a minute.
local function looks_back(rule, from)
  if not is_flow(rule) then return MINUTE end
  local _, _, ends, following = period_at(rule.periods or {}, from)
  if not ends then return rule.span end
  -- What was granted close to the end counts in the next period, too.
  return (from < ends - rule.margin and ends or following) + rule.margin - from
end

-- Closes a bucket for the epoch, once: what was granted before the epoch is not known, as if the bucket had forgotten it. For a bucket
-- of Sluice's own it is known (state.lua), because nobody else takes from it.
local function close(bucket, epoch)
  if bucket.own then bucket.closed = epoch.at end
  if bucket.closed == epoch.at then return end
  local from, span = bucket.stored and math.max(epoch.at, bucket.at) or epoch.at, 0
  for _, rule in ipairs(bucket.rules) do span = math.max(span, looks_back(rule, from)) end
  bucket.closed = epoch.at
  if epoch.most > 0 then bucket.hold = math.max(bucket.hold, from + math.min(span, epoch.most)) end
  if epoch.most >= span then bucket.lost = math.max(bucket.lost, from) end
end

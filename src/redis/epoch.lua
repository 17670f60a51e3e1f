-- Decides whether the state is whole, by a hash beside the buckets, since it is lost with them. Its fields:
-- id: id of the epoch, random. history: the server's history of writes when the epoch began. at: that time, in us.
-- most: a bucket that was not written since then is closed from then on for as long as its rules look back, but no more us than this.
-- owner: the database that began it; only it begins epochs here, unless several databases share the limits. unset: anybody may.
-- stores: number of databases that share the limits. joined: how many of them have added to this epoch what they granted before.
-- o:<owner>: id under which a database takes part in this epoch. m:<id>: 1 for each such id.
local MINUTE = 60000000
-- Use that is known from another clock, or was granted ahead, is no later than this (us) after the epoch began.
local LATE = 1000000

-- Returns the name that the server gives to its history of writes: it changes after a restart (whatever the server has read from its
-- disk), a failover, or a while as a replica. A server that gives none is trusted; one that ceases to give it is not.
local function history()
  local info = redis.pcall('INFO', 'replication')
  local from = type(info) == 'string' and string.find(info, 'master_replid:', 1, true)
  return from and string.match(info, '^%x+', from + 14) or ''
end

-- Returns fields of an epoch; none if its key has a value of another program, which the next epoch replaces.
local function fields_of(key, ...)
  local found = redis.pcall('HMGET', key, ...)
  return unpack(found.err and {} or found)
end

-- Returns the epoch in force. If the state is not whole, or is not of the epoch that the caller knows: nil, and the reply 'lost',
-- the call's id and the id of the epoch in force ('': none).
local function whole(key, call)
  local member = 'm:' .. (call.epoch or '')
  local id, of, at, most, stores, joined, is_member =
    fields_of(key, 'id', 'history', 'at', 'most', 'stores', 'joined', member)
  if id and of == history() and (not call.epoch or is_member) then
    stores = tonumber(stores or 1)
    return { at = tonumber(at), most = tonumber(most), stores = stores, lacks = tonumber(joined or 1) < stores }
  end
  return nil, { 'lost', call.id, id or '' }
end

-- Returns for how many us after a time the grants before it may matter to a rule. Running jobs have no such time: a minute.
local function looks_back(rule, from)
  if not is_flow(rule) then return MINUTE end
  local _, _, ends, following = period_at(rule.periods or {}, from)
  if not ends then return rule.span end
  -- Grants close to the end count in the next period, too.
  return (from < ends - rule.margin and ends or following) + rule.margin - from
end

-- Counts in a bucket of Sluice's own what several databases granted before the epoch. What counts in windows and quotas is the sum of
-- what they add (join.lua); until all have added it, the bucket is shut. Debts cannot be added, because each ledger drains its own: a rate
-- is full when the epoch begins, which is never too little.
local function gather(bucket, epoch)
  local from, span = epoch.at + LATE, 0
  for i, rule in ipairs(bucket.rules) do
    if is_flow(rule) and (rule.slot > 0 or rule.periods) then
      span = math.max(span, looks_back(rule, from))
    elseif is_flow(rule) and bucket.closed ~= epoch.at then
      local full = rule.room * rule.weight
      local owes = bucket.at < from and full + rule.drain * (from - bucket.at) or drained(full, rule.drain, bucket.at - from)
      bucket.debt[i] = math.max(bucket.debt[i], owes)
    end
  end
  if not epoch.lacks then return end
  bucket.shut = from + span
  bucket.lost = math.max(bucket.lost, from)
end

-- Closes a bucket for the epoch, once: what was granted before the epoch is not known, as if the bucket had forgotten it. For a bucket
-- of Sluice's own it is known (state.lua), because nobody else takes from it.
local function close(bucket, epoch)
  if bucket.own and epoch.stores > 1 then gather(bucket, epoch) end
  if bucket.own then bucket.closed = epoch.at end
  if bucket.closed == epoch.at then return end
  local from, span = bucket.stored and math.max(epoch.at, bucket.at) or epoch.at, 0
  for _, rule in ipairs(bucket.rules) do span = math.max(span, looks_back(rule, from)) end
  bucket.closed = epoch.at
  if epoch.most > 0 then bucket.hold = math.max(bucket.hold, from + math.min(span, epoch.most)) end
  if epoch.most >= span then bucket.lost = math.max(bucket.lost, from) end
end

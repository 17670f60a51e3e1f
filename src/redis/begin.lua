-- Begins an epoch where none stands, or the one that the caller found. KEYS: the epoch's, then of each bucket. ARGV[1]: the call as
-- JSON: id: of the new epoch; it is begun once. instead: of the one that was found. cap, until and buckets as for a reserve. most:
-- as in the epoch. holds: of each bucket, no grant for so many us from now.
-- Answers 'begun', the id and when it began; or 'lost', the id and the epoch that stands: nothing was done. Or 'late', the id and
-- times; or what `open` says.

local function begin(keys, call)
  local stands, of, at = unpack(redis.call('HMGET', keys[1], 'id', 'history', 'at'))
  if stands == call.id and of == history() then return { 'begun', call.id, tonumber(at) } end
  if stands and (stands == call.id or stands ~= call.instead) then return { 'lost', call.id, stands } end
  local now, shown = clock(call.cap)
  if shown > call['until'] then return { 'late', call.id, now, shown } end
  local buckets, first = open(keys, call, { at = now, most = call.most }, now, shown)
  if not buckets then return first end
  for i, bucket in ipairs(buckets) do
    hold(bucket, call.holds[i], now)
    save(bucket, shown)
  end
  local began = string.format('%.0f', now)
  redis.call('HSET', keys[1], 'id', call.id, 'history', history(), 'at', began, 'most', string.format('%.0f', call.most))
  return { 'begun', call.id, now }
end

return begin(KEYS, cjson.decode(ARGV[1]))

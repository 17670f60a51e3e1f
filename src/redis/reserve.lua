-- Grants what fits. KEYS: the epoch's, of the answer, then of each bucket. ARGV[1]: the call as JSON:
-- id: of the grant; the same id gives the same answer. epoch: the one that the caller knows. cap: the latest time that the
-- caller's monotonic clock allows Redis's clock to show. until: when it shows more, the call is too late. These may be unset.
-- further: one more request of what runs, which takes no place of concurrency.
-- buckets: of each version, counted, keep (us; grants are remembered for so long) and rules. items: want, and takes: pairs of
-- a bucket (1: the first) and units of it; each of the `want` gets all of its buckets or none.
-- Answers 'decided', the id (a client may mix up replies when one is lost on the way), the time, what the clock shows, and of
-- each item how many of the `want` were granted, after how many us it is worth asking again for the rest (0: it was all), and
-- which bucket is the last to have room (0: none lacks it). Or 'lost', the id and the epoch that stands; or 'late', the id and
-- times; or what `open` says.

-- How many of an item fit into its buckets. What takes nothing waits all the same while nothing is free.
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

-- When the next of an item fits into all its buckets, and which of them is the last.
local function delay(buckets, item, now, further)
  local at, last = 0, 0
  for _, take in ipairs(item.takes) do
    local bucket = buckets[take[1]]
    local units, places = free(bucket, further)
    if units < math.max(take[2], 1) or places < 1 then
      local next = next_at(bucket, now, further, take[2])
      if next > at then at, last = next, take[1] end
    end
  end
  return math.max(at - now, 1), last
end

local function grant(buckets, item, further, granted)
  local fits = fitting(buckets, item, further)
  for _, take in ipairs(fits > 0 and item.takes or {}) do
    local i, units = take[1], fits * take[2]
    local places = charge(buckets[i], units, further and 0 or fits)
    local before = granted[i] or { 0, 0 }
    granted[i] = { before[1] + units, before[2] + places }
  end
  return fits
end

local function reserve(keys, call)
  local epoch, lost = whole(keys[1], call)
  if not epoch then return lost end
  local now, shown = clock(call.cap)
  local given = answered(keys[2], call, now, shown)
  if given then return given end
  local buckets, first = open(keys, call, epoch, now, shown)
  if not buckets then return first end
  for _, bucket in ipairs(buckets) do advance(bucket, now) end
  local granted, reply = {}, { 'decided', call.id, now, shown }
  for _, item in ipairs(call.items) do
    local fits = grant(buckets, item, call.further, granted)
    local wait, last = 0, 0
    if fits < item.want then wait, last = delay(buckets, item, now, call.further) end
    for _, value in ipairs({ fits, wait, last }) do reply[#reply + 1] = value end
  end
  -- A denied bucket is not written: its time goes on when something is granted.
  for i, given_out in pairs(granted) do
    remember(buckets[i], call.id, given_out[1], given_out[2])
    save(buckets[i], shown)
  end
  return answer(keys[2], reply)
end

return reserve(KEYS, cjson.decode(ARGV[1]))

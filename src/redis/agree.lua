-- Agrees with other databases on the definitions of limits that all of them have. The definition that was changed last holds for all: a
-- database changes it when its own version is greater than the one that it last agreed with. So a database that has not followed a change
-- yet takes nothing back. What Redis has lost is restored from what any caller knows of it.
-- KEYS: for each limit a key of its own, and that of its published definition.
-- ARGV[1]: the call as JSON:
-- owner: the caller's database.
-- limits: for each limit
--   version: its version in the caller's database.
--   text: its definition as JSON, without a version.
--   published: whether the caller publishes it.
--   stood: what was in force when the caller last agreed: text, version, and own, the version in its own database then. Unset: it has not
--   agreed yet.
-- Returns for each limit the version (the same in all databases) and the text of the definition in force, and 1 if any database publishes
-- it, else 0.
local call = cjson.decode(ARGV[1])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local reply = {}
for i, limit in ipairs(call.limits) do
  local key, mine = KEYS[2 * i - 1], 'o:' .. call.owner
  local found = redis.pcall('HMGET', key, 'text', 'version', mine, 'published')
  -- A value of another program counts as lost, and is replaced. Not each user of the scripts may send DEL.
  if found.err then redis.call('PEXPIRE', key, '0') end
  local text, version, agreed, published = unpack(found)
  local stood = limit.stood
  local before = agreed or stood and stood.own
  if stood and tonumber(version or 0) < stood.version then
    text, version = stood.text, string.format('%.0f', stood.version)
    redis.call('HSET', key, 'text', text, 'version', version)
  end
  local is_changed = text ~= limit.text and before and tonumber(before) < limit.version
  if not text or is_changed then
    -- Greater than any before, also if the one before was lost.
    text, version = limit.text, string.format('%.0f', math.max(tonumber(version or 0) + 1, now))
    redis.call('HSET', key, 'text', text, 'version', version)
  end
  if not agreed or tonumber(agreed) < limit.version then redis.call('HSET', key, mine, limit.version) end
  if limit.published and not published then redis.call('HSET', key, 'published', 1) end
  if limit.published or published then redis.call('SET', KEYS[2 * i], '{"version":' .. version .. ',' .. string.sub(text, 2)) end
  reply[3 * i - 2], reply[3 * i - 1], reply[3 * i] = version, text, (limit.published or published) and 1 or 0
end
return reply

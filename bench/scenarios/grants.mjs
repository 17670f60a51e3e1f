// Grants a second in Redis, many in a call and one by one, compared with calls of two scripts: one that only counts, and the token bucket
// of one key that limits Celery's jobs in the other scenarios.
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { limit } from '../../dist/index.js'
import { RedisLimiter } from '../../dist/redis/limiter.js'

const slices = 5
const counter = `return redis.call('INCRBY', KEYS[1], ARGV[1])`
const bucket = readFileSync(new URL('../celery/bucket.lua', import.meta.url), 'utf8')
/** A limit that is too high to bind, a minute. */
const most = 100_000_000

export default {
  name: 'grants',
  about:
    'grants a second in Redis, of calls for many of one key, for one of each of many keys, and for one, beside pipelined calls of a script that only counts, and of a token bucket',
  peers: ['sluice'],
  server: 'redis',
  full: { pipelined: 100, units: 50, seconds: 10 },
  quick: { pipelined: 100, units: 50, seconds: 2 },
  shape: () => ({ kind: 'grants' }),
  async run({ place, options: { pipelined, units, seconds } }) {
    const { Redis } = await import('ioredis')
    const redis = new Redis(place.url, { enableAutoPipelining: true })
    const [counts, takes] = [await redis.script('LOAD', counter), await redis.script('LOAD', bucket)]
    const limiter = new RedisLimiter({ send: (command, args) => redis.call(command, ...args) })
    const epoch = randomUUID()
    await limiter.begin({ epoch, owner: 'bench', closeUs: 0 })
    const { rules } = limit('shared', { rate: `${most}/min` })
    const bucketsOf = (count) => Array.from({ length: count }, (_, i) => ({ name: `shared:${i}`, rules, version: 1 }))
    /** Makes one call for several grants of each bucket, all of which must be granted. */
    const reserve = async (want, buckets = one) => {
      const items = buckets.map((_, bucket) => ({ want, takes: [{ bucket, units: 1 }] }))
      const { results = [] } = await limiter.reserve({ id: randomUUID(), epoch, buckets, items, aheadUs: 0 })
      const granted = results.reduce((sum, result) => sum + result.granted, 0)
      if (granted !== want * buckets.length) throw new Error(`${granted} of ${want * buckets.length} were granted`)
      return granted
    }
    const [one, many] = [bucketsOf(1), bucketsOf(units)]
    const raw = async () => {
      await redis.evalsha(counts, 1, 'raw', 1)
      return 1
    }
    let taken = 0
    const rawBucket = async () => {
      const waitS = await redis.evalsha(takes, 1, `raw:${taken++ % units}`, most, most / 60)
      if (waitS !== '0') throw new Error(`the token bucket denied, for ${String(waitS)} s`)
      return 1
    }
    const kinds = {
      raw: () => together(pipelined, raw),
      'raw-bucket': () => together(pipelined, rawBucket),
      batched: () => together(pipelined, () => reserve(units)),
      keys: () => together(pipelined, () => reserve(1, many)),
      single: () => together(pipelined, () => reserve(1)),
      'raw-alone': raw,
      alone: () => reserve(1),
    }
    const rates = await inTurns(kinds, seconds)
    redis.disconnect()
    const share = (name, of) => ({
      bench: `grants-${name}-of-${of}`,
      value: (rates[name] / rates[of]) * 100,
      unit: '% of the calls of that script',
    })
    return [
      ...Object.entries(rates).map(([name, value]) => ({
        bench: `grants-${name}`,
        value,
        unit: name.startsWith('raw') ? 'calls/s' : 'grants/s',
      })),
      ...['raw', 'raw-bucket'].flatMap((of) => ['batched', 'keys', 'single'].map((name) => share(name, of))),
      share('alone', 'raw-alone'),
    ]
  },
}

/** Runs several calls at once, which the client writes together. */
async function together(count, call) {
  const counts = await Promise.all(Array.from({ length: count }, () => call()))
  return counts.reduce((a, b) => a + b, 0)
}

/** Measures the rate of each, in alternating slices, so that other load on the machine affects all alike. */
async function inTurns(kinds, seconds) {
  const done = Object.fromEntries(Object.keys(kinds).map((name) => [name, { count: 0, ms: 0 }]))
  // The first slice warms up.
  for (let slice = 0; slice <= slices; slice++) {
    for (const [name, go] of Object.entries(kinds)) {
      const sinceMs = performance.now()
      let [count, ms] = [0, 0]
      while (ms < (seconds / slices) * 1000) {
        count += await go()
        ms = performance.now() - sinceMs
      }
      if (slice === 0) continue
      done[name].count += count
      done[name].ms += ms
    }
  }
  return Object.fromEntries(Object.entries(done).map(([name, { count, ms }]) => [name, (count / ms) * 1000]))
}

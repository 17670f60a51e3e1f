// The load that all peers get: the same message, a handler that only counts, and conditions to wait for.
import { setTimeout as sleep } from 'node:timers/promises'

/** All peers, from `peers/` and `celery.mjs`; `postgres` is the upper bound, not a queue. */
export const everyPeer = [
  'sluice',
  'sluice-embedded',
  'postgres',
  'bullmq',
  'pg-boss',
  'graphile-worker',
  'dbos',
  'celery-rabbitmq',
  'celery-redis',
]

/** 220 bytes of JSON. */
export const message = { accountId: 'a1', contactId: '123456', pad: 'x'.repeat(168) }

/** Returns the units of a rate such as `100/10s`, and its window in ms. */
export function windowOf(rate) {
  const [, units, count = '1', unit] = /^(\d+)\/(\d*)(s|min)$/.exec(rate) ?? []
  if (units === undefined) throw new Error(`the rate "${rate}" is not of the form 200/s, 100/10s or 100/min`)
  return { units: Number(units), windowMs: Number(count || 1) * (unit === 's' ? 1_000 : 60_000) }
}

/** Returns how many scripts a Redis has run, by which these peers claim and limit. */
export async function scriptsRun(redis) {
  return Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1] ?? 0)
}

/** Makes messages in batches of `size`, on demand. */
export function* batches(count, size = 1000, messageOf = () => message) {
  for (let from = 0; from < count; from += size) {
    yield Array.from({ length: Math.min(size, count - from) }, (_, i) => messageOf(from + i))
  }
}

/** Sends `count` messages by the peer's bulk call. */
export async function fill(session, count, messageOf) {
  if (session.sendStream !== undefined) return session.sendStream(flat(batches(count, 1000, messageOf)))
  for (const batch of batches(count, 1000, messageOf)) await session.sendMany(batch)
}

function* flat(all) {
  for (const batch of all) yield* batch
}

/** Makes a handler that counts its calls and can be awaited. */
export function counter() {
  let count = 0
  let goal = Infinity
  let reached = () => {}
  return {
    get count() {
      return count
    },
    handle() {
      if (++count >= goal) reached()
    },
    /** Resolves when `goal` calls were made in total; throws after `limitS` seconds. */
    async until(wanted, limitS = 300) {
      if (count >= wanted) return
      const end = new AbortController()
      const done = new Promise((resolve) => {
        goal = wanted
        reached = resolve
      })
      const late = sleep(limitS * 1000, undefined, { signal: end.signal }).then(
        () => Promise.reject(new Error(`${count} of ${wanted} jobs ran in ${limitS} s`)),
        () => {},
      )
      await Promise.race([done, late])
      end.abort()
    },
  }
}

/** Returns the seconds since a `performance.now()`. */
export const secondsSince = (sinceMs) => (performance.now() - sinceMs) / 1000

/** Returns the calls a second of `lanes` loops that each await their calls, over some seconds. */
export async function calledBy(lanes, seconds, call) {
  const since = performance.now()
  let count = 0
  const loop = async () => {
    while (secondsSince(since) < seconds) {
      await call()
      count += 1
    }
  }
  await Promise.all(Array.from({ length: lanes }, loop))
  return count / secondsSince(since)
}

/** Calls so many times, one at a time and 10 to 30 ms apart; returns when each call began, in monotonic ms. */
export async function calledSingly(count, call) {
  const times = []
  for (let n = 0; n < count; n++) {
    times.push(monotonicMs())
    await call()
    await sleep(10 + Math.random() * 20)
  }
  return times
}

/** Monotonic ms, the same in all processes of one machine. */
export const monotonicMs = () => Number(process.hrtime.bigint() / 1000n) / 1000

/** Returns the quantile of the samples. */
export function quantile(samples, share) {
  const sorted = samples.toSorted((a, b) => a - b)
  return sorted[Math.min(Math.floor(sorted.length * share), sorted.length - 1)]
}

/**
 * Returns how many of these times (any unit) a vendor rejects that allows `most` in any half-open window, and does not count
 * what it rejects.
 */
export function refusedOf(times, most, window) {
  const through = []
  let refused = 0
  for (const time of times.toSorted((a, b) => a - b)) {
    if (through.length >= most && time < through[through.length - most] + window) refused += 1
    else through.push(time)
  }
  return refused
}

/** Returns the most of these times (any unit) in one half-open window that begins with one of them. */
export function mostIn(times, window) {
  const sorted = Float64Array.from(times).toSorted()
  let most = 0
  let end = 0
  for (let start = 0; start < sorted.length; start++) {
    while (end < sorted.length && sorted[end] < sorted[start] + window) end++
    most = Math.max(most, end - start)
  }
  return most
}

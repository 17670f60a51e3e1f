// Which part of a rate reaches a vendor in the long run: a backlog whose jobs each call it, measured by its own clock.
import { setTimeout as sleep } from 'node:timers/promises'
import { charge, emptyWindow, waitOf } from '../dist/testing/window.js'
import { startFleet } from './fleet.mjs'
import { meter } from './limited.mjs'
import { fill, message, monotonicMs, mostIn, windowOf } from './load.mjs'
import { startVendor } from './vendor.mjs'

/** Makes a scenario of so many worker processes. */
export function usedAt({ name, workers }) {
  const options = {
    rate: '200/s',
    workers,
    warm: 150,
    seconds: 30,
    delay: 0,
    keys: 0,
    label: 0,
    cost: 1,
    takes: 0,
    further: 0,
  }
  return {
    name,
    about: `${workers} worker processes, a backlog behind a rate, each job calls a vendor: the part of the rate that arrives there after a warm-up, what it would refuse in each way of counting, the margin in force, claims and CPU for each job`,
    peers: ['sluice', 'sluice-redis', 'sluice-redis-own', 'bullmq', 'dbos', 'rate-limiter-flexible'],
    runs: 1,
    isPaced: true,
    full: options,
    quick: { ...options, warm: 5, seconds: 5 },
    limitS: ({ warm, seconds }) => warm + seconds + 120,
    shape: ({ rate, keys, label, cost, takes, further }) => ({
      kind: 'limited',
      rate,
      isKeyed: keys > 0,
      isLabelled: label > 0,
      cost,
      takes,
      further,
    }),
    run: (asked) => usedRun(name, asked),
  }
}

async function usedRun(name, { peer, place, pids, options: { rate, workers, warm, seconds, delay, keys }, shape }) {
  const vendor = await startVendor(delay)
  const { units, windowMs } = windowOf(rate)
  const called = { ...shape, vendor: vendor.url }
  const session = await peer.open(place, called)
  const messageOf = keys > 0 ? (i) => ({ ...message, accountId: `k${i % keys}` }) : undefined
  const calls = ((warm + seconds + 5) * units * 1_000) / windowMs + units
  if (!(shape.takes > 0)) await fill(session, Math.ceil(calls / (1 + (shape.further ?? 0))), messageOf)
  const fleet = await startFleet({ peer, place, shape: called, count: workers })
  const spent = meter({ fleet, session, pids })
  await fleet.go()
  await fleet.until(1, 60)
  await sleep(warm * 1_000)
  const [fromMs, before] = [monotonicMs(), await spent()]
  await sleep(seconds * 1_000)
  const [untilMs, after] = [monotonicMs(), await spent()]
  await fleet.stop()
  const margin = await session.margin?.()
  await session.close()
  const times = (await vendor.arrivals()).toSorted((a, b) => a - b)
  const measured = times.filter((ms) => ms >= fromMs && ms < untilMs)
  const tookMs = measured.at(-1) - measured[0]
  const each = (what) =>
    after[what] === undefined ? undefined : (after[what] - before[what]) / (after.ran - before.ran)
  return [
    {
      bench: `${name}-used`,
      value: (((measured.length - 1) / tookMs) * windowMs * 100) / units,
      unit: '% of the nominal rate',
    },
    { bench: `${name}-most`, value: mostIn(times, windowMs), unit: `in a window, of ${units}` },
    ...refusals(times, units, windowMs).map(([way, value]) => ({
      bench: `${name}-refused-by-${way}`,
      value,
      unit: `of ${times.length}`,
    })),
    { bench: `${name}-calls`, value: each('calls'), unit: 'calls/job' },
    { bench: `${name}-cpu`, value: 1_000 * each('cpu'), unit: 'CPU s/1000 jobs' },
    ...(margin === undefined
      ? []
      : [
          { bench: `${name}-life`, value: margin.grantUs / 1_000, unit: 'ms that a grant lives' },
          { bench: `${name}-way`, value: margin.transitUs / 1_000, unit: 'ms for the way' },
        ]),
  ]
}

/** How many phases of a vendor's windows are tried: of those the worst counts. */
const phases = 60

/**
 * Returns for each way in which a vendor may count how many of these calls (ms, in order) it refuses, if it allows so many in a window.
 * It does not count what it refuses. The small bucket holds a tenth.
 */
export function refusals(times, limit, windowMs) {
  const windowNs = windowMs * 1e6
  const ways = {
    log: { algorithm: 'sliding log', burst: limit },
    window: { algorithm: 'fixed window', burst: limit },
    bucket: { algorithm: 'bucket', burst: limit },
    counter: { algorithm: 'sliding counter', burst: limit },
    'small-bucket': { algorithm: 'bucket', burst: Math.max(1, Math.floor(limit / 10)) },
  }
  return Object.entries(ways).map(([way, more]) => {
    const rule = { ...more, limit, windowNs }
    const hasPhase = ['fixed window', 'sliding counter'].includes(rule.algorithm)
    const offsets = Array.from({ length: hasPhase ? phases : 1 }, (_, i) => (i * windowNs) / phases)
    return [way, Math.max(...offsets.map((offsetNs) => refusedBy(rule, times, offsetNs)))]
  })
}

function refusedBy(rule, times, offsetNs) {
  const state = emptyWindow(rule)
  return times.reduce((refused, ms) => {
    const atNs = (ms - times[0]) * 1e6 + offsetNs
    if (waitOf(rule, state, atNs) > 0) return refused + 1
    charge(rule, state, atNs)
    return refused
  }, 0)
}

// Which part of a rate reaches a vendor in the long run: a backlog whose jobs each call it, measured by its own clock.
import { setTimeout as sleep } from 'node:timers/promises'
import { startFleet } from './fleet.mjs'
import { meter } from './limited.mjs'
import { fill, message, monotonicMs, mostIn, refusedOf, windowOf } from './load.mjs'
import { startVendor } from './vendor.mjs'

/** Makes a scenario of so many worker processes. */
export function usedAt({ name, workers }) {
  const options = { rate: '200/s', workers, warm: 150, seconds: 30, delay: 0, keys: 0, label: 0, cost: 1 }
  return {
    name,
    about: `${workers} worker processes, a backlog behind a rate, each job calls a vendor: the part of the rate that arrives there after a warm-up, what it would refuse, the margin in force, claims and CPU for each job`,
    peers: ['sluice', 'sluice-redis', 'sluice-redis-own', 'bullmq'],
    runs: 1,
    isPaced: true,
    full: options,
    quick: { ...options, warm: 5, seconds: 5 },
    limitS: ({ warm, seconds }) => warm + seconds + 120,
    shape: ({ rate, keys, label, cost }) => ({ kind: 'limited', rate, isKeyed: keys > 0, isLabelled: label > 0, cost }),
    run: (asked) => usedRun(name, asked),
  }
}

async function usedRun(name, { peer, place, pids, options: { rate, workers, warm, seconds, delay, keys }, shape }) {
  const vendor = await startVendor(delay)
  const { units, windowMs } = windowOf(rate)
  const called = { ...shape, vendor: vendor.url }
  const session = await peer.open(place, called)
  const messageOf = keys > 0 ? (i) => ({ ...message, accountId: `k${i % keys}` }) : undefined
  await fill(session, Math.ceil(((warm + seconds + 5) * units * 1_000) / windowMs) + units, messageOf)
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
  const each = (what) => (after[what] - before[what]) / (after.ran - before.ran)
  return [
    {
      bench: `${name}-used`,
      value: (((measured.length - 1) / tookMs) * windowMs * 100) / units,
      unit: '% of the nominal rate',
    },
    { bench: `${name}-most`, value: mostIn(times, windowMs), unit: `in a window, of ${units}` },
    { bench: `${name}-refused`, value: refusedOf(times, units, windowMs), unit: `of ${times.length} by a sliding log` },
    { bench: `${name}-calls`, value: each('calls'), unit: 'calls/job' },
    { bench: `${name}-cpu`, value: each('cpu') * 1_000, unit: 'CPU s/1000 jobs' },
    ...(margin === undefined
      ? []
      : [
          { bench: `${name}-life`, value: margin.grantUs / 1_000, unit: 'ms that a grant lives' },
          { bench: `${name}-way`, value: margin.transitUs / 1_000, unit: 'ms for the way' },
        ]),
  ]
}

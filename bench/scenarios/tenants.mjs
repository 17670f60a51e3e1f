// Many tenants with a rate each, one of which came first and has half of the backlog: who is served within some seconds?
import { setTimeout as sleep } from 'node:timers/promises'
import { cpuSeconds } from '../cpu.mjs'
import { startFleet } from '../fleet.mjs'
import { fill, message, mostIn } from '../load.mjs'

const hotTenant = 't0'

export default {
  name: 'tenants',
  about:
    'tenants with 5 a second each in one worker process, one of which came first with half of the backlog: who was served in 20 s, CPU seconds, memory',
  peers: ['sluice', 'bullmq', 'pg-boss', 'graphile-worker', 'dbos', 'celery-redis'],
  full: { tenants: 1_000, hot: 50_000, each: 50, perTenant: '5/s', seconds: 20 },
  quick: { tenants: 200, hot: 5_000, each: 25, perTenant: '5/s', seconds: 10 },
  runs: 3,
  shape: ({ tenants, perTenant }) => ({
    kind: 'tenants',
    perTenant,
    tenants: Array.from({ length: tenants }, (_, i) => `t${i}`),
  }),
  async run({ peer, place, pids, options: { tenants, hot, each, perTenant, seconds }, shape }) {
    const session = await peer.open(place, shape)
    await fill(session, hot, () => ({ ...message, accountId: hotTenant }))
    const others = tenants - 1
    // The other tenants alternate, so that no tenant's jobs are adjacent.
    await fill(session, others * each, (i) => ({ ...message, accountId: `t${1 + (i % others)}` }))
    const fleet = await startFleet({ peer, place, shape, count: 1 })
    const watched = [...fleet.pids, ...pids]
    await fleet.go()
    const before = cpuSeconds(watched)
    await fleet.until(1, 60)
    await sleep(seconds * 1000)
    const cpu = before === undefined ? undefined : cpuSeconds(watched) - before
    const [{ times, keys, rssMb }] = await fleet.stop()
    await session.close()
    return tenantLines({ times, keys, seconds, perTenant, cpu, rssMb, promise: peer.promise?.({ rate: perTenant }) })
  },
}

/** Makes the lines of this scenario from the times (ms) at which each tenant's jobs began. */
export function tenantLines({ times, keys, seconds, perTenant, cpu, rssMb, promise }) {
  const endMs = times.reduce((least, time) => Math.min(least, time), Infinity) + seconds * 1000
  const timesOf = new Map()
  for (const [i, key] of keys.entries()) {
    if (times[i] >= endMs) continue
    if (!timesOf.has(key)) timesOf.set(key, [])
    timesOf.get(key).push(times[i])
  }
  const all = [...timesOf.values()].reduce((sum, { length }) => sum + length, 0)
  const hot = timesOf.get(hotTenant)?.length ?? 0
  const most = Math.max(0, ...[...timesOf.values()].map((own) => mostIn(own, 1000)))
  const worst = promise?.worst ?? Number.parseInt(perTenant, 10)
  return [
    { bench: 'tenants-others', value: all - hot, unit: 'jobs of the others ran' },
    { bench: 'tenants-hot', value: hot, unit: 'jobs of the first one ran' },
    { bench: 'tenants-served', value: timesOf.size, unit: 'tenants were served' },
    { bench: 'tenants-most', value: most, unit: 'of one tenant in a second' },
    {
      bench: 'tenants-excess',
      value: Math.max(most / worst - 1, 0) * 100,
      unit: '% over the promise',
      promised: worst,
    },
    { bench: 'tenants-cpu', value: cpu, unit: 'CPU s' },
    { bench: 'tenants-rss', value: rssMb, unit: 'MB' },
  ]
}

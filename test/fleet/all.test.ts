/**
 * Everything at once, with real processes on a server of their own: priorities, weights, rules, windows, concurrency and a
 * schedule, while workers are killed and the database crashes. The vendor, in a process of its own, is the truth.
 */
import { fileURLToPath } from 'node:url'
import { expect, test, vi } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { type AnyTask, type Rule, Sluice } from '../../src/index.ts'
import { isLong } from '../long.ts'
import { startPostgres } from '../servers/postgres.ts'
import { later, until } from '../until.ts'
import { end, start, vendorOf } from './children.ts'

// The definitions of the workers' own code.
const definitions: string = './all.mjs'
const { rated, windowed, rules } = (await import(definitions)) as {
  rated: AnyTask
  windowed: AnyTask
  rules: readonly Rule[]
}
const memberFile = fileURLToPath(new URL('./all.mjs', import.meta.url))
const workers = isLong ? 8 : 3
const lastsMs = isLong ? 180_000 : 12_000
/** How often a worker is killed, and how often the database. */
const killMs = isLong ? 3_000 : 4_000
const crashMs = isLong ? 30_000 : 6_000
vi.setConfig({ testTimeout: lastsMs + 600_000 })

test('a fleet loses nothing, exceeds nothing and schedules nothing twice while workers are killed and the database crashes', async (context) => {
  const server = await startPostgres()
  const log = { algorithm: 'sliding log' }
  const rates = await vendorOf(context, [
    { ...log, limit: 160, windowMs: 4_000 },
    { algorithm: 'fixed window', limit: 80, windowMs: 4_000, key: 'header:x-key' },
  ])
  const many = await vendorOf(context, [
    { ...log, limit: 60, windowMs: 4_000, key: 'header:x-key' },
    { ...log, limit: 300, windowMs: 30_000, key: 'header:x-key' },
    { algorithm: 'concurrency', limit: 3, key: 'header:x-key' },
  ])
  const vendors = { rated: rates.url, windowed: many.url }
  const options = { store: server.url, vendors, concurrency: 6 }
  const sluice = await Sluice.open({ store: server.url, rules })
  // A process that starts during a crash ends with an error; a supervisor would start it again, until it stays.
  const enter = async () => {
    const begin = async () => (await start(context, memberFile, options).catch(() => undefined))?.child
    let child = await begin()
    await until(async () => (child ??= await begin()) !== undefined, 'a worker has started')
    return child as NonNullable<typeof child>
  }
  const fleet = await Promise.all(Array.from({ length: workers }, enter))
  const sinceMs = performance.now()
  const isOver = () => performance.now() - sinceMs > lastsMs
  const every = async (ms: number, act: () => Promise<void>) => {
    for (let last = sinceMs; !isOver();) {
      await until(() => isOver() || performance.now() - last > ms, 'the next blow', lastsMs + 60_000)
      last = performance.now()
      if (!isOver()) await act()
    }
  }
  // Sent with ids of their own, so that a send whose outcome is unknown is repeated as it is.
  const acknowledged = new Map<string, number>()
  const send = async () => {
    for (let n = 0; !isOver(); n++) {
      const work = (n % 4 === 0 ? windowed : rated) as AnyTask
      const id = newId()
      const sent = () => sluice.send(work, { n, key: `k${n % 5}` }, { id, priority: (n % 7) - 3 })
      await sent().catch(() => sent())
      acknowledged.set(id, n)
      const at = performance.now()
      if (n > 60) await until(() => performance.now() - at > 20)
    }
  }
  const kill = async () => {
    fleet.shift()?.kill('SIGKILL')
    fleet.push(await enter())
  }
  const crash = async () => {
    await server.stop('immediate')
    await server.start()
  }
  await Promise.all([later(every(killMs, kill)), later(every(crashMs, crash)), later(send())])

  const ids = [...acknowledged.keys()]
  const ended = async () => {
    const [row] = await sluice.db.query<{ n: string }>(
      `select (select count(*) from sluice.done where id = any ($1::uuid[])) + (select count(*) from sluice.failed where id = any ($1::uuid[])) as n`,
      [ids],
    )
    return Number(row?.n) >= ids.length
  }
  await until(ended, 'all that was acknowledged has ended', 300_000)
  for (const one of [rates, many]) {
    const report = await one.report()
    expect(report.rules.map(({ exceeded }) => exceeded)).toEqual(report.rules.map(() => 0))
    // The vendor itself proves the concurrency: it would have answered 429.
    expect(report.vendor429).toBe(0)
  }
  expect(await sluice.verify()).toMatchObject({ isProved: true, exceeded: [], missing: [] })
  const arrivals = [...(await rates.arrivals()), ...(await many.arrivals())]

  // One by one: thousands at once would wait for the pool's few connections for longer than a request may.
  const jobs = []
  for (const id of ids) jobs.push(await sluice.jobs.get(id))
  const seen = new Map<string, number>()
  for (const { jobId } of arrivals) seen.set(String(jobId), (seen.get(String(jobId)) ?? 0) + 1)
  for (const job of jobs) {
    const n = acknowledged.get(job?.id ?? '') ?? 0
    const times = seen.get(job?.id ?? '') ?? 0
    if (n % 50 === 7) {
      expect(job).toMatchObject({ state: 'cancelled', reason: 'discarded by rule drop: every fiftieth' })
      expect(times).toBe(0)
      continue
    }
    const isFast = job?.task === 'rated' && n % 3 === 0
    const queue = isFast ? 'fast' : n % 80 === 1 ? 'last' : n % 40 === 1 ? 'aside' : 'default'
    // Three crashes end a job; then it is in the history, with its reason.
    if (job?.state === 'failed') expect(job).toMatchObject({ reason: 'crashed', crashes: 3 })
    else expect(job).toMatchObject({ state: 'done', queue })
    if (job?.state === 'done') expect(times).toBeGreaterThanOrEqual(1)
    expect(times).toBeLessThanOrEqual(1 + (job?.failed ?? 0) + (job?.crashes ?? 0))
  }

  // Each second from the first to the last has one job, and no other.
  const ticks = await sluice.db.query<{ at: string }>(
    `select substr(t, 15) as at from (select tags from sluice.done where task = 'tick' union all select tags from sluice.failed where task = 'tick'
     union all select tags from sluice.job where task = 'tick') jobs, unnest(tags) t where t like 'scheduled-for:%' order by 1`,
  )
  const instants = ticks.map(({ at }) => Date.parse(at))
  const first = instants[0] ?? 0
  expect(instants).toEqual(instants.map((_, i) => first + i * 1_000))
  expect(instants.length).toBeGreaterThan(lastsMs / 1_000 / 2)
  console.log(`${ids.length} jobs, ${arrivals.length} arrivals, ${instants.length} instants`)
  await end(fleet)
  await sluice.close()
  await server.stop()
})

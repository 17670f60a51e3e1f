/** The main job with real processes on a real server: the vendor, in a process of its own, is the truth. */
import type { ChildProcess } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { describe, expect, test, vi } from 'vitest'
import { z } from 'zod'
import { Sluice } from '../../src/index.ts'
import { guarantees } from '../../src/limits/guarantee.ts'
import { limit } from '../../src/limits/limit.ts'
import { type AnyTask, task } from '../../src/tasks/task.ts'
import type { Arrival } from '../../src/testing/proof.ts'
import { freshDatabase } from '../servers/database.ts'
import { isLong } from '../long.ts'
import { later, until } from '../until.ts'
import { end, type Owner, start, vendorOf } from './children.ts'

const memberFile = fileURLToPath(new URL('./member.mjs', import.meta.url))
const jobs = isLong ? 1_800 : 200
const many = isLong ? 8 : 4
/** Many times as long as the limit takes for this number of jobs. */
const endMs = 90_000 + jobs * 300
vi.setConfig({ testTimeout: 2 * endMs })
// As in member.mjs, which has the handler. On a busy machine a call may take a second to arrive.
const fleetLimit = limit('fleet', { rate: '160/4s', transit: '1s' })
const keyLimit = limit('fleet-key', { rate: '80/4s', by: 'key', transit: '1s' })
const input = z.object({ key: z.string(), i: z.number() })
const call = task('call', { input, limits: [fleetLimit, keyLimit], run: () => undefined }) as unknown as AnyTask
const promise = guarantees(fleetLimit)[0]
const perSecond = promise?.perSecond ?? 0
const burst = promise?.burst ?? 0

/** A fleet on a schema of its own, with a vendor that allows 160 per 4 s in all and 80 per 4 s for each key. */
async function fleet(owner: Owner, name: string, concurrency: number) {
  const schema = `fleet_${name}`
  const { url: store } = await freshDatabase()
  const rules = [
    { name: 'all, safe rate', algorithm: 'sliding log', limit: 160, windowMs: 4_000 },
    { name: 'key, safe rate', algorithm: 'fixed window', limit: 80, windowMs: 4_000, key: 'header:x-key' },
  ]
  const { url: vendor, arrivals, report } = await vendorOf(owner, rules)
  const options = { store, schema, vendor, concurrency }
  const sluice = await Sluice.open({ store, schema })
  const members: ChildProcess[] = []
  const enter = async () => {
    const { child } = await start(owner, memberFile, options)
    members.push(child)
    return child
  }
  return {
    sluice,
    enter,
    send: (count: number) =>
      sluice.sendMany(
        call,
        Array.from({ length: count }, (_, i) => ({ key: `k${i % 5}`, i })),
      ),
    /** Every job ended, counted in the tables, not by the system's own counts. */
    ended: async (count: number) => {
      const [row] = await sluice.db.query<{ n: string }>(
        `select (select count(*) from ${schema}.done) + (select count(*) from ${schema}.failed) as n`,
      )
      return Number(row?.n) >= count
    },
    arrivals,
    report,
    async close() {
      await end(members.filter(({ exitCode, signalCode }) => exitCode === null && signalCode === null))
      await sluice.close()
    },
  }
}

/** Seconds between the first and the last of the vendor's arrivals. */
function span(arrivals: Arrival[]): number {
  return (Number(arrivals.at(-1)?.atNs) - Number(arrivals[0]?.atNs)) / 1e9
}

const share = (rate = 0, of: number) => (rate / of).toFixed(3)

/** Arrivals beyond the first of each job that no recorded cause explains. */
async function unexplained(sluice: Sluice, arrivals: Arrival[]): Promise<string[]> {
  const seen = new Map<string, number>()
  for (const arrival of arrivals) seen.set(String(arrival.jobId), (seen.get(String(arrival.jobId)) ?? 0) + 1)
  const extra: string[] = []
  for (const [id, times] of seen) {
    if (times === 1) continue
    const job = await sluice.jobs.get(id)
    if (times > 1 + (job?.failed ?? 0) + (job?.crashes ?? 0))
      extra.push(`${id}: ${times} arrivals, ${job?.failed} failures, ${job?.crashes} crashes`)
  }
  return extra
}

/** The ledger agrees with the vendor. */
async function proved(sluice: Sluice): Promise<void> {
  const { rules, ...proof } = await sluice.verify()
  expect(proof).toMatchObject({ isProved: true, exceeded: [], missing: [] })
  // A limit whose grants have got a longer life meanwhile has had two versions, and each is a rule.
  expect(new Set(rules.map(({ limit }) => limit)).size).toBe(2)
  expect(new Set(rules.map(({ guarantee, exceeded }) => `${guarantee} ${exceeded}`))).toEqual(new Set(['safe rate 0']))
}

describe('a fleet under one shared limit and one for each key', { concurrent: !isLong }, () => {
  // By itself, because it measures rates.
  test.sequential(`reaches the same rate with 1 and ${many} worker processes, with nothing exceeded, lost or done twice`, async (context) => {
    const rates: number[] = []
    for (const workers of [1, many]) {
      const run = await fleet(context, `same_${workers}`, 8)
      await Promise.all(Array.from({ length: workers }, run.enter))
      await run.send(jobs)
      await until(() => run.ended(jobs), 'all ended', endMs)
      const arrivals = await run.arrivals()
      const report = await run.report()
      expect(report.vendor429).toBe(0)
      expect(report.rules.map((rule) => rule.exceeded)).toEqual([0, 0])
      expect(new Set(arrivals.map((arrival) => arrival.jobId)).size).toBe(jobs)
      expect(await unexplained(run.sluice, arrivals)).toEqual([])
      await proved(run.sluice)
      rates.push((jobs - burst) / span(arrivals))
      await run.close()
    }
    // The part of the guaranteed rate. More is impossible, as was proved above; less is measured: 0.95 and more on a machine
    // that does nothing else, so the bound is far from the rate of a busy one.
    for (const rate of rates) expect(rate / perSecond).toBeGreaterThan(isLong ? 0.97 : 0.15)
    if (isLong) expect(Math.abs((rates[1] ?? 0) / (rates[0] ?? 1) - 1)).toBeLessThan(0.02)
    console.log(
      `of the guarantee: 1 worker ${share(rates[0], perSecond)}, ${many} workers ${share(rates[1], perSecond)}`,
    )
  })

  test('exceeds, loses and repeats nothing without a cause while a worker is killed with -9 every 2 s and another is stopped', async (context) => {
    const run = await fleet(context, 'killed', 8)
    const members = await Promise.all(Array.from({ length: 4 }, run.enter))
    const stopped = await run.enter()
    await run.send(jobs)
    stopped.kill('SIGSTOP')
    const since = performance.now()
    let killing = true
    const kill = async () => {
      for (let last = since; killing;) {
        await until(() => !killing || performance.now() - last > 2_000)
        last = performance.now()
        if (!killing) return
        members.shift()?.kill('SIGKILL')
        members.push(await run.enter())
        if (last - since > 12_000) stopped.kill('SIGCONT')
      }
    }
    const nemesis = later(kill())
    await until(() => run.ended(jobs), 'all ended', endMs).finally(() => (killing = false))
    await nemesis
    stopped.kill('SIGCONT')
    const arrivals = await run.arrivals()
    const report = await run.report()
    expect(report.rules.map((rule) => rule.exceeded)).toEqual([0, 0])
    expect(report.vendor429).toBe(0)
    expect(new Set(arrivals.map((arrival) => arrival.jobId)).size).toBe(jobs)
    expect(await unexplained(run.sluice, arrivals)).toEqual([])
    await proved(run.sluice)
    await run.close()
  })

  test('makes no burst above the limit when all workers were down while jobs waited', async (context) => {
    const run = await fleet(context, 'down', 8)
    const jobs = isLong ? 1_800 : 160
    const first = await run.enter()
    await run.send(jobs)
    await until(() => run.ended(30), 'some ended', endMs)
    await end([first])
    const since = performance.now()
    // A whole window of the vendor and more, so that every bucket is full again.
    await until(async () => performance.now() - since > (isLong ? 30_000 : 6_000))
    await Promise.all(Array.from({ length: 3 }, run.enter))
    await until(() => run.ended(jobs), 'all ended', endMs)
    const arrivals = await run.arrivals()
    const report = await run.report()
    expect(report.rules.map((rule) => rule.exceeded)).toEqual([0, 0])
    expect(report.vendor429).toBe(0)
    expect(new Set(arrivals.map((arrival) => arrival.jobId)).size).toBe(jobs)
    expect(await unexplained(run.sluice, arrivals)).toEqual([])
    await proved(run.sluice)
    await run.close()
  })
})

/**
 * The main job with real processes on a real server: the vendor, in a process of its own, is the truth.
 * SLUICE_TEST_JOBS and SLUICE_TEST_SECONDS make the runs longer.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { Sluice } from '../../src/index.ts'
import { guarantees } from '../../src/limits/guarantee.ts'
import { limit } from '../../src/limits/limit.ts'
import { type AnyTask, task } from '../../src/dispatch/task.ts'
import type { Arrival } from '../../src/testing/proof.ts'
import type { Report } from '../../src/testing/vendor.ts'
import { freshDatabase } from '../servers/database.ts'

const memberFile = fileURLToPath(new URL('./member.mjs', import.meta.url))
const serveFile = fileURLToPath(new URL('../../dist/testing/serve.js', import.meta.url))
const jobs = Number(process.env['SLUICE_TEST_JOBS'] ?? 300)
// As in member.mjs, which has the handler.
const fleetLimit = limit('fleet', { rate: '160/4s' })
const keyLimit = limit('fleet-key', { rate: '80/4s', by: 'key' })
const input = z.object({ key: z.string(), i: z.number() })
const call = task('call', { input, limits: [fleetLimit, keyLimit], run: () => undefined }) as unknown as AnyTask
const promise = guarantees(fleetLimit)[0]
const perSecond = promise?.perSecond ?? 0
const burst = promise?.burst ?? 0

let database: Awaited<ReturnType<typeof freshDatabase>>
const children = new Set<ChildProcess>()

beforeAll(async () => {
  database = await freshDatabase()
})
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL')
  await database.drop()
})

function start(args: string[]): { child: ChildProcess; firstLine: Promise<string> } {
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  children.add(child)
  child.once('exit', () => children.delete(child))
  const firstLine = once(createInterface(child.stdout), 'line').then(([line]) => String(line))
  return { child, firstLine }
}

/** A fleet on a schema of its own, with a vendor that allows 160 per 4 s in all and 80 per 4 s for each key. */
async function fleet(name: string, concurrency: number) {
  const schema = `fleet_${name}_${randomBytes(3).toString('hex')}`
  const rules = [
    { name: 'all', algorithm: 'sliding log', limit: 160, windowMs: 4_000 },
    { name: 'key', algorithm: 'fixed window', limit: 80, windowMs: 4_000, key: 'header:x-key' },
  ]
  const vendor = start([serveFile, JSON.stringify({ rules, latencyMs: 5 })])
  const url = await vendor.firstLine
  const options = JSON.stringify({ store: database.url, schema, vendor: url, concurrency })
  const sluice = await Sluice.open({ store: database.url, schema })
  const enter = async () => {
    const member = start([memberFile, options])
    await member.firstLine
    return member.child
  }
  return {
    sluice,
    enter,
    send: (count: number) =>
      sluice.sendMany(
        call,
        Array.from({ length: count }, (_, i) => ({ key: `k${i % 5}`, i })),
      ),
    /** Every job ended, counted in the tables, not by what the system says of itself. */
    ended: async (count: number) => {
      const [row] = await sluice.db.query<{ n: string }>(
        `select (select count(*) from ${schema}.done) + (select count(*) from ${schema}.failed) as n`,
      )
      return Number(row?.n) >= count
    },
    arrivals: async () => (await (await fetch(`${url}/.vendor/arrivals`)).json()) as Arrival[],
    report: async () => (await (await fetch(`${url}/.vendor/report`)).json()) as Report,
    async close() {
      const ends = [...children].filter((child) => child !== vendor.child).map((child) => once(child, 'exit'))
      for (const child of children) child.kill('SIGTERM')
      await Promise.all(ends)
      await sluice.close()
    },
  }
}

async function until(met: () => Promise<boolean>): Promise<void> {
  await expect.poll(met, { timeout: 90_000, interval: 50 }).toBe(true)
}

/** Seconds between the first and the last of the vendor's arrivals. */
function span(arrivals: Arrival[]): number {
  return (Number(arrivals.at(-1)?.atNs) - Number(arrivals[0]?.atNs)) / 1e9
}

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

describe('a fleet under one shared limit and one for each key', () => {
  test('1 and 8 worker processes: the same rate, nothing exceeded, nothing lost, nothing twice', async () => {
    const rates: number[] = []
    for (const workers of [1, 8]) {
      const run = await fleet(`same_${workers}`, 8)
      await Promise.all(Array.from({ length: workers }, run.enter))
      await run.send(jobs)
      await until(() => run.ended(jobs))
      const arrivals = await run.arrivals()
      const report = await run.report()
      expect(report.vendor429).toBe(0)
      expect(report.rules.map((rule) => rule.exceeded)).toEqual([0, 0])
      expect(new Set(arrivals.map((arrival) => arrival.jobId)).size).toBe(jobs)
      expect(await unexplained(run.sluice, arrivals)).toEqual([])
      rates.push((jobs - burst) / span(arrivals))
      await run.close()
    }
    // Of what the guarantee allows; the two runs are compared with each other, in one run on one machine.
    for (const rate of rates) expect(rate / perSecond).toBeGreaterThan(0.75)
    expect(Math.abs((rates[1] ?? 0) / (rates[0] ?? 1) - 1)).toBeLessThan(0.2)
  }, 180_000)

  test('one worker killed with -9 every 2 s, and one stopped and continued: nothing exceeded, lost, or twice without a cause', async () => {
    const run = await fleet('killed', 8)
    const members = await Promise.all(Array.from({ length: 4 }, run.enter))
    const stopped = await run.enter()
    await run.send(jobs)
    stopped.kill('SIGSTOP')
    const since = performance.now()
    let killing = true
    const nemesis = (async () => {
      for (let last = since; killing;) {
        await expect.poll(() => !killing || performance.now() - last > 2_000, { timeout: 60_000 }).toBe(true)
        last = performance.now()
        if (!killing) return
        members.shift()?.kill('SIGKILL')
        members.push(await run.enter())
        if (last - since > 12_000) stopped.kill('SIGCONT')
      }
    })()
    await until(() => run.ended(jobs))
    killing = false
    await nemesis
    stopped.kill('SIGCONT')
    const arrivals = await run.arrivals()
    const report = await run.report()
    expect(report.rules.map((rule) => rule.exceeded)).toEqual([0, 0])
    expect(report.vendor429).toBe(0)
    expect(new Set(arrivals.map((arrival) => arrival.jobId)).size).toBe(jobs)
    expect(await unexplained(run.sluice, arrivals)).toEqual([])
    await run.close()
  }, 240_000)

  test('all workers down while jobs wait, then back: no burst above the limit', async () => {
    const run = await fleet('down', 8)
    const first = await run.enter()
    await run.send(jobs)
    await until(() => run.ended(30))
    const ended = once(first, 'exit')
    first.kill('SIGTERM')
    await ended
    const since = performance.now()
    // A whole window of the vendor and more, so that every bucket is full again.
    await until(async () => performance.now() - since > 6_000)
    await Promise.all(Array.from({ length: 3 }, run.enter))
    await until(() => run.ended(jobs))
    const arrivals = await run.arrivals()
    const report = await run.report()
    expect(report.rules.map((rule) => rule.exceeded)).toEqual([0, 0])
    expect(report.vendor429).toBe(0)
    expect(arrivals.map((arrival) => arrival.jobId)).toHaveLength(jobs)
    expect(await unexplained(run.sluice, arrivals)).toEqual([])
    await run.close()
  }, 180_000)
})

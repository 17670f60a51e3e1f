/** One limit in Redis for workers, web processes and programs in other languages: the vendor, in a process of its own, is the truth. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { type AnyTask, guarantees, limit, type Rate, Sluice, task } from '../../src/index.ts'
import type { Arrival } from '../../src/testing/proof.ts'
import { findPython } from '../examples/interpreter.ts'
import { end, type Owner, start, vendorOf } from '../fleet/children.ts'
import { isLong } from '../long.ts'
import { freshDatabase } from '../servers/database.ts'
import { type Proxy, startProxy } from '../servers/proxy.ts'
import { startRedis } from '../servers/redis.ts'
import { copies } from '../rows.ts'
import { later, until } from '../until.ts'

const memberFile = fileURLToPath(new URL('./member.mjs', import.meta.url))
const takerFile = fileURLToPath(new URL('./taker.py', import.meta.url))
const examples = fileURLToPath(new URL('../../examples/python', import.meta.url))
const usual = '160/4s'
const jobs = isLong ? 1_800 : 200
const many = isLong ? 8 : 2
const endMs = 120_000 + jobs * 300
vi.setConfig({ testTimeout: 2 * endMs })
/** The long form measures rates, so that its tests run one after the other. */
const atOnce = { concurrent: !isLong }

/** A store, a Redis, and a vendor that allows 160 in 4 s, or another rate. */
async function world(test: Owner, published: boolean, rate: Rate = usual, most = 160, windowMs = 4_000) {
  const { url: store } = await freshDatabase()
  const redis = await startRedis()
  test.onTestFinished(() => redis.close())
  const vendor = await vendorOf(test, [{ name: 'all', algorithm: 'sliding log', limit: most, windowMs }])
  const shared = limit('shared', { rate, transit: '1s', published })
  const call = task('call', { input: z.object({}), limits: [shared], run: () => undefined }) as unknown as AnyTask
  const sluice = await Sluice.open({ store })
  test.onTestFinished(() => sluice.close())
  const common = { store, redis: redis.url, vendor: vendor.url, rate, published }
  return {
    redis,
    sluice,
    enter: async (more: object = {}) => (await start(test, memberFile, { ...common, role: 'works', ...more })).child,
    web: async (count: number) => (await start(test, memberFile, { ...common, role: 'calls', count })).child,
    python: () => taker(test, redis.url, vendor.url),
    send: (count: number) => sluice.sendMany(call, copies(count)),
    /** @throws Error some have failed for good, so that it would wait for ever */
    ended: async (count: number) => {
      const failed = await sluice.db.query<{ error: unknown }>('select error from sluice.failed')
      if (failed.length > 0) throw new Error(`${failed.length} jobs failed, one by ${JSON.stringify(failed[0]?.error)}`)
      const [row] = await sluice.db.query<{ n: number }>(
        `select count(*)::int as n from sluice.done where state = 'done'`,
      )
      return (row?.n ?? 0) >= count
    },
    arrivals: vendor.arrivals,
    /** Checks that no window is exceeded, no job lost, none called twice without a cause; resolves to the arrivals. */
    async proved(count: number): Promise<Arrival[]> {
      const [arrivals, report] = [await vendor.arrivals(), await vendor.report()]
      expect(report.rules.map((rule) => rule.exceeded)).toEqual([0])
      expect(report.vendor429).toBe(0)
      const own = arrivals.filter(({ path }) => path === '/job')
      expect(new Set(own.map(({ jobId }) => jobId)).size).toBe(count)
      expect(own).toHaveLength(count)
      return arrivals
    },
  }
}

/** A process in Python that calls the vendor. */
async function taker({ onTestFinished }: Owner, redis: string, vendor: string): Promise<ChildProcess> {
  const env = { ...process.env, PYTHONPATH: examples, PYTHONDONTWRITEBYTECODE: '1' }
  const child = spawn(await findPython('redis'), [takerFile, redis, vendor], {
    env,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  await once(createInterface(child.stdout), 'line')
  return child
}

const seconds = (arrivals: readonly Arrival[]) => (Number(arrivals.at(-1)?.atNs) - Number(arrivals[0]?.atNs)) / 1e9
const [promise] = guarantees(limit('shared', { rate: usual, transit: '1s' }))
/** The part of the guaranteed rate that arrived. */
function utilisation(arrivals: readonly Arrival[]): number {
  return (arrivals.length - (promise?.burst ?? 0)) / seconds(arrivals) / (promise?.perSecond ?? 0)
}

/** The same part in the middle of a backlog. */
const pace = (arrivals: readonly Arrival[]) => (arrivals.length - 1) / seconds(arrivals) / (promise?.perSecond ?? 0)

// By itself, because it measures rates.
describe('the rate of a limit that is shared in Redis', () => {
  it(`is the same with 1 and ${many} worker processes, with nothing exceeded, lost or done twice`, async (context) => {
    const shares: number[] = []
    for (const workers of [1, many]) {
      const run = await world(context, false)
      const members = await Promise.all(Array.from({ length: workers }, () => run.enter()))
      await run.send(jobs)
      await until(() => run.ended(jobs), 'all are done', endMs)
      shares.push(utilisation(await run.proved(jobs)))
      const proof = await run.sluice.verify()
      expect(proof).toMatchObject({ isProved: true, exceeded: [] })
      await end(members)
    }
    console.log(`of the guarantee: 1 worker ${shares[0]?.toFixed(3)}, ${many} workers ${shares[1]?.toFixed(3)}`)
    for (const share of shares) expect(share).toBeGreaterThan(isLong ? 0.97 : 0.15)
  })
})

describe('a limit that is shared in Redis', atOnce, () => {
  it.runIf(isLong)('gives the same rate to 1 and 8 processes in five minutes at 100 a minute', async (context) => {
    const [minute] = guarantees(limit('shared', { rate: '100/min', transit: '1s' }))
    const count = Math.floor((minute?.burst ?? 0) + 300 * (minute?.perSecond ?? 0))
    for (const workers of [1, 8]) {
      const run = await world(context, false, '100/min', 100, 60_000)
      const members = await Promise.all(Array.from({ length: workers }, () => run.enter()))
      await run.send(count)
      await until(() => run.ended(count), 'all are done', 600_000)
      const arrivals = await run.proved(count)
      const share = (count - (minute?.burst ?? 0)) / seconds(arrivals) / (minute?.perSecond ?? 0)
      console.log(
        `${workers} processes: ${count} in ${seconds(arrivals).toFixed(1)} s, ${share.toFixed(4)} of the guarantee`,
      )
      expect(share).toBeGreaterThan(0.97)
      await end(members)
    }
  })

  it('is not exceeded by a worker, a web process and one in Python, and each of them gets units', async (context) => {
    const run = await world(context, true)
    // While jobs wait, Python takes most of the units.
    const jobs = isLong ? 1_800 : 120
    const members = [await run.enter(), await run.enter()]
    const web = await run.web(jobs / 3)
    const python = await run.python()
    await run.send(jobs)
    web.stdin?.write('go\n')
    await until(() => run.ended(jobs), 'all are done', endMs)
    python.stdin?.end()
    const arrivals = await run.proved(jobs)
    const of = (path: string) => arrivals.filter((one) => one.path === path).length
    console.log(
      `${of('/job')} by jobs, ${of('/web')} by the web, ${of('/python')} in Python: ${utilisation(arrivals).toFixed(3)} of the guarantee`,
    )
    expect(of('/web')).toBeGreaterThan(jobs / 10)
    expect(of('/python')).toBeGreaterThan(10)
    await end(members)
  })
})

const faults: Record<string, (to: Proxy, tries: number) => Promise<void> | void> = {
  'swallows replies': (to) => later(to.swallow({ when: 'EVALSHA' })),
  'closes on replies': (to) => later(to.swallow({ when: 'EVALSHA', leave: 'closed' })),
  'is half-open for a while': async (to, tries) => (tries % 2 === 0 ? to.halfOpen() : to.pass()),
  'delays all': (to, tries) => to.delay(tries % 3 === 0 ? 0 : 30 * (tries % 3)),
  'resets connections': (to) => to.reset(),
}

describe('a way to Redis that', atOnce, () => {
  it.for(Object.entries(faults))('%s leads to nothing exceeded, lost or leaked', async ([, fault], context) => {
    const run = await world(context, false)
    const way = await startProxy({ port: run.redis.port })
    context.onTestFinished(() => way.close())
    const members = await Promise.all([1, 2].map(() => run.enter({ redis: way.url(run.redis.url) })))
    const [jobs, most] = isLong ? [1_800, 10] : [160, 6]
    await run.send(jobs)
    // A reply can be swallowed only while there are jobs.
    const allEnded = later(until(() => run.ended(jobs), 'all are done', endMs))
    let tries = 0
    let last = performance.now()
    await until(async () => {
      if (performance.now() - last < 700) return false
      last = performance.now()
      await Promise.race([fault(way, tries), allEnded])
      return ++tries === most
    })
    await way.pass()
    way.delay(0)
    const before = (await run.arrivals()).length
    const sinceMs = performance.now()
    await allEnded
    const arrivals = await run.proved(jobs)
    // With the faults over, the remaining jobs take about as long as the limit demands.
    const left = arrivals.slice(before)
    console.log(
      `${left.length} were left; they took ${((performance.now() - sinceMs) / 1_000).toFixed(1)} s, at ${pace(left.slice(-100)).toFixed(2)} of the guarantee in the end`,
    )
    await end(members)
  })
})

it(
  'a Redis that is killed again and again and comes back empty leads to nothing exceeded or lost',
  atOnce,
  async (context) => {
    const run = await world(context, false)
    const members = await Promise.all([1, 2, 3].map(() => run.enter()))
    await run.send(jobs)
    let last = performance.now()
    let kills = 0
    let isOver = false
    const nemesis = later(
      (async () => {
        await until(
          async () => {
            if (isOver || performance.now() - last < (isLong ? 5_000 : 2_000)) return isOver
            last = performance.now()
            kills++
            await run.redis.kill()
            await run.redis.start()
            return false
          },
          'it is over',
          endMs,
        )
      })(),
    )
    await until(() => run.ended(jobs), 'all are done', endMs).finally(() => (isOver = true))
    await nemesis
    const arrivals = await run.proved(jobs)
    console.log(`${kills} kills, ${utilisation(arrivals).toFixed(2)} of the guarantee`)
    expect(kills).toBeGreaterThan(1)
    await end(members)
  },
)

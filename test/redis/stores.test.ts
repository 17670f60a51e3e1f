/** Several databases with one limit in one Redis: the vendor, in a process of its own, is the truth. */
import { afterEach, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { fileURLToPath } from 'node:url'
import { type AnyTask, guarantees, limit, type Rate, Sluice, task } from '../../src/index.ts'
import { end, start, vendorOf } from '../fleet/children.ts'
import { isLong } from '../long.ts'
import { freshDatabase } from '../servers/database.ts'
import { startRedis } from '../servers/redis.ts'
import { until } from '../until.ts'

const memberFile = fileURLToPath(new URL('./member.mjs', import.meta.url))
const rate: Rate = '160/4s'
const [promise] = guarantees(limit('shared', { rate, transit: '1s' }))
const jobs = isLong ? 1_800 : 240
const endMs = 120_000 + jobs * 300
vi.setConfig({ testTimeout: 2 * endMs })

const ends: (() => unknown)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

/** Databases with a limit of the same name in one Redis, and a vendor that allows 160 in 4 s in all. */
async function world(names: readonly string[]) {
  const redis = await startRedis()
  ends.push(() => redis.close())
  const vendor = await vendorOf([{ name: 'all', algorithm: 'sliding log', limit: 160, windowMs: 4_000 }])
  const shared = limit('shared', { rate, transit: '1s' })
  const call = task('call', { input: z.object({}), limits: [shared], run: () => undefined }) as unknown as AnyTask
  const stores = await Promise.all(
    names.map(async (name) => {
      const { url: store } = await freshDatabase()
      const sluice = await Sluice.open({ store })
      ends.push(() => sluice.close())
      const path = `/${name}`
      const about = { store, redis: redis.url, vendor: vendor.url, rate, published: false, stores: names.length, path }
      return {
        sluice,
        path,
        enter: async () => (await start(memberFile, { ...about, role: 'works' })).child,
        send: (count: number) =>
          sluice.sendMany(
            call,
            Array.from({ length: count }, () => ({})),
          ),
        ended: async () => {
          const [row] = await sluice.db.query<{ n: number }>(`select count(*)::int as n from sluice.done`)
          return row?.n ?? 0
        },
      }
    }),
  )
  return {
    redis,
    stores,
    arrivals: vendor.arrivals,
    /** Checks that no window is exceeded, and no job lost or called twice; resolves to the arrivals. */
    async proved(count: number) {
      const [arrivals, report] = [await vendor.arrivals(), await vendor.report()]
      expect(report.rules.map((rule) => rule.exceeded)).toEqual([0])
      expect(report.vendor429).toBe(0)
      expect(new Set(arrivals.map(({ jobId }) => jobId)).size).toBe(count)
      expect(arrivals).toHaveLength(count)
      for (const { sluice } of stores) expect(await sluice.verify()).toMatchObject({ isProved: true, exceeded: [] })
      return arrivals
    },
  }
}

it('one limit holds over two databases, and both use it about alike', async () => {
  const run = await world(['eu', 'us'])
  const members = await Promise.all(run.stores.flatMap(({ enter }) => [enter(), enter()]))
  await Promise.all(run.stores.map(({ send }) => send(jobs)))
  await until(
    async () => (await Promise.all(run.stores.map(({ ended }) => ended()))).every((n) => n === jobs),
    'all are done',
    endMs,
  )
  const arrivals = await run.proved(2 * jobs)
  const seconds = (Number(arrivals.at(-1)?.atNs) - Number(arrivals[0]?.atNs)) / 1e9
  const share = (arrivals.length - (promise?.burst ?? 0)) / seconds / (promise?.perSecond ?? 0)
  // While both have jobs waiting, that is at least until half of all jobs are done.
  const first = arrivals.slice(0, jobs)
  const parts = run.stores.map(({ path }) => first.filter((one) => one.path === path).length / first.length)
  console.log(
    `of the guarantee: ${share.toFixed(3)}; of the first ${jobs}: ${parts.map((part) => part.toFixed(2)).join(' and ')}`,
  )
  // On a busy machine grants grow old and go back, so the short form does not judge it.
  if (isLong) expect(share).toBeGreaterThan(0.9)
  for (const part of parts) expect(part).toBeGreaterThan(0.25)
  await end(members)
})

it('nothing is exceeded when Redis loses its state, and one of two databases begins it anew', async () => {
  const run = await world(['eu', 'us'])
  const members = await Promise.all(run.stores.map(({ enter }) => enter()))
  await Promise.all(run.stores.map(({ send }) => send(jobs)))
  const ended = async () => Promise.all(run.stores.map((store) => store.ended()))
  for (const part of [0.2, 0.5]) {
    await until(async () => (await ended()).every((n) => n > jobs * part), 'some of both are done', endMs)
    await run.redis.kill()
    await run.redis.start()
  }
  await until(async () => (await ended()).every((n) => n === jobs), 'all are done', endMs)
  await run.proved(2 * jobs)
  await end(members)
})

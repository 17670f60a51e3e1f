/** Databases with one limit in Redis, their workers, and a vendor that is the truth. */
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'
import { z } from 'zod'
import { type AnyTask, limit, type Rate, Sluice, task } from '../../src/index.ts'
import { type Owner, start, vendorOf } from '../fleet/children.ts'
import { freshDatabase } from '../servers/database.ts'
import { copies } from '../rows.ts'

const memberFile = fileURLToPath(new URL('./member.mjs', import.meta.url))
/** What the limit allows. */
export const rate: Rate = '160/4s'

/** Databases with a limit of the same name in one Redis, and a vendor that allows 160 in 4 s in all. */
export async function world(test: Owner, names: readonly string[], redisUrl: string) {
  const vendor = await vendorOf(test, [{ name: 'all', algorithm: 'sliding log', limit: 160, windowMs: 4_000 }])
  const shared = limit('shared', { rate, transit: '1s' })
  const call = task('call', { input: z.object({}), limits: [shared], run: () => undefined }) as unknown as AnyTask
  const stores = await Promise.all(
    names.map(async (name) => {
      const { url: store } = await freshDatabase()
      const sluice = await Sluice.open({ store })
      test.onTestFinished(() => sluice.close())
      const path = `/${name}`
      const about = { store, redis: redisUrl, vendor: vendor.url, rate, published: false, stores: names.length, path }
      return {
        sluice,
        path,
        enter: async () => (await start(test, memberFile, { ...about, role: 'works' })).child,
        send: (count: number) => sluice.sendMany(call, copies(count)),
        ended: async () => {
          const [row] = await sluice.db.query<{ n: number }>(`select count(*)::int as n from sluice.done`)
          return row?.n ?? 0
        },
      }
    }),
  )
  return {
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

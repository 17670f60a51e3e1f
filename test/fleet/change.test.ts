/**
 * A limit that goes down and up while worker processes call. The promise: a decision after a change keeps the new bound,
 * counting the grants under the old one; a decision before it kept the old bound. So no window at the vendor
 * that ends before the change holds more than the old bound, none that begins a margin after it more than the new one, and
 * none between more than the greater of the two.
 */
import { fileURLToPath } from 'node:url'
import { expect, test, onTestFinished } from 'vitest'
import { z } from 'zod'
import { limit, type Rate, Sluice, task } from '../../src/index.ts'
import { type Arrival, prove } from '../../src/testing/proof.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'
import { grantsOf } from '../limits/engine.ts'
import { start, vendorOf } from './children.ts'

const memberFile = fileURLToPath(new URL('member.mjs', import.meta.url))
// As in member.mjs: the transit may vary by a second.
const input = z.object({ key: z.string() })
const limits = [
  limit('fleet', { rate: '160/4s', transit: '1s' }),
  limit('fleet-key', { rate: '80/4s', by: 'key', transit: '1s' }),
]
const call = task('call', { input, limits: limits as never, run: () => undefined })
const windowMs = 2_000
const marginNs = 1.1e9

/** Most arrivals in any half-open window between two moments at the vendor. */
const most = (arrivals: readonly Arrival[], fromNs: number, toNs: number): number => {
  const some = arrivals.filter(({ atNs }) => atNs >= fromNs && atNs < toNs).map((one) => ({ ...one, keys: [''] }))
  return prove(some, [{ name: '', limit: 0, windowMs }]).rules[0]?.worst ?? 0
}

test('a change of a limit is in force at once, and no window holds more than the limit of its time', async (context) => {
  const { url: store } = await freshDatabase()
  const rules = [{ name: 'all', algorithm: 'sliding log', limit: 100_000, windowMs }]
  const { url: vendor, arrivals } = await vendorOf(context, rules)
  const sluice = await Sluice.open({ store })
  onTestFinished(() => sluice.close())
  await sluice.define([call as never])
  const mark = async () => {
    await (await fetch(`${vendor}/mark`)).text()
    return (await arrivals()).findLast(({ path }) => path === '/mark')?.atNs ?? NaN
  }
  const reason = 'under load'
  const phases: { beforeNs: number; sinceNs: number }[] = []
  const set = async (units: number) => {
    const beforeNs = await mark()
    await sluice.limits.set('fleet', { rate: `${units}/2s` as Rate }, { reason })
    phases.push({ beforeNs, sinceNs: await mark() })
  }
  /** Waits until a window has held more than this, and for longer than a window and the margin. */
  const lasts = async (units: number) => {
    const { sinceNs } = phases.at(-1) ?? { sinceNs: 0 }
    const endNs = sinceNs + windowMs * 1e6 + 1.5 * marginNs
    await until(async () => {
      const all = await arrivals()
      return (all.at(-1)?.atNs ?? 0) > endNs && most(all, sinceNs, Infinity) > units
    }, `more than ${units} in a window`)
  }
  await sluice.sendMany(
    call,
    Array.from({ length: 1_500 }, (_, i) => ({ key: `k${i % 50}` })),
  )
  await set(60)
  await Promise.all([1, 2].map(() => start(context, memberFile, { store, schema: 'sluice', vendor, concurrency: 8 })))
  await lasts(20)
  await set(20)
  await lasts(2)
  await set(100)
  await lasts(20)
  const endNs = await mark()
  const seen = (await arrivals()).filter(({ path }) => path !== '/mark')
  const [, low, high] = phases as [object, (typeof phases)[0], (typeof phases)[0]]
  expect(most(seen, 0, low.beforeNs)).toBeLessThanOrEqual(60)
  expect(most(seen, 0, high.beforeNs)).toBeLessThanOrEqual(60)
  expect(most(seen, low.sinceNs + marginNs, high.beforeNs)).toBeLessThanOrEqual(20)
  expect(most(seen, low.sinceNs, endNs)).toBeLessThanOrEqual(100)
  await kept(sluice)
})

/** Each grant, with all kept grants in the window and margin up to it, is within the rate by which it was decided. */
async function kept(sluice: Sluice): Promise<void> {
  const rows = await sluice.db.query<{ version: number; worst: number; units: number }>(
    `select l.version, max(w.units)::int as worst, (d.spec -> 'rules' -> 0 ->> 'units')::int as units
     from sluice.ledger l join sluice.bucket b on b.id = l.bucket and b.name = 'fleet'
     join sluice.limit_def d on d.name = 'fleet' and d.version = l.version
     cross join lateral (select sum(k.units) as units from ${grantsOf('l.bucket', 'l.at - 3100000')} k where k.at <= l.at) w
     where l.units > 0 group by 1, 3 order by 1`,
  )
  expect(rows.map(({ units }) => units)).toEqual([60, 20, 100])
  for (const { worst, units } of rows) expect(worst).toBeLessThanOrEqual(units)
}

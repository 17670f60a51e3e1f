/** Workers measure the margins of their limits. */
import { afterEach, expect, it } from 'vitest'
import { limit, type Limit, Sluice, task } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { startProxy } from '../servers/proxy.ts'
import { until } from '../until.ts'

const ends: (() => unknown)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end()
})

async function lifeMs(sluice: Sluice, of: Limit): Promise<number> {
  const [row] = await sluice.db.query<{ ms: number }>(
    `select (grant_us / 1000)::int as ms from sluice.limit_def where name = $1 order by version desc limit 1`,
    [of.name],
  )
  return row?.ms ?? 0
}

it('a grant lives longer where each claim takes longer than it lived, so that jobs begin', async () => {
  const { url } = await freshDatabase()
  const proxy = await startProxy({ port: Number(new URL(url).port) })
  ends.push(() => proxy.close())
  const sluice = await Sluice.open({ store: proxy.url(url) })
  ends.push(() => sluice.close())
  const calls = limit('calls', { rate: '50/s' })
  let ran = 0
  const call = task('call', { limits: [calls], run: async () => void ran++ })
  await sluice.sendMany(call, Array(15).fill({}))
  proxy.delay(70)
  await sluice.work([call])
  await until(() => ran === 15, 'all jobs ran', 30_000)
  proxy.delay(0)
  expect(await lifeMs(sluice, calls)).toBeGreaterThan(140)
  const { isProved, rules } = await sluice.verify()
  expect(isProved).toBe(true)
  expect(rules.at(-1)?.windowMs).toBeGreaterThan(1_240)
}, 60_000)

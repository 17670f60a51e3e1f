/** Two processes whose code disagrees about a limit in Redis: both definitions hold there, until one is gone for 15 s. */
import { randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { rulesOf } from '../../src/limits/rules.ts'
import { limit, type LimitOptions, Sluice, task } from '../../src/index.ts'
import { parsePublished } from '../../src/redis/definition.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import type { Owner } from '../fleet/children.ts'
import { freshDatabase } from '../servers/database.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'
import { putAdapted } from '../claim/engine-parts.ts'

/** A store and a Redis, processes with code of their own, and what Redis alone allows. */
async function stage({ onTestFinished }: Owner) {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const store = (await freshDatabase()).url
  const client = await connectRedis(redis.port)
  onTestFinished(() => client.close())
  return {
    async process(options: LimitOptions) {
      const ran: number[] = []
      const crm = limit('crm', { ...options, published: true })
      const call = task('call', { limits: [crm], run: () => void ran.push(1) })
      const sluice = await Sluice.open({ store, redis: redis.url })
      onTestFinished(() => sluice.close())
      return { sluice, crm, call, ran }
    },
    /** The rules that Redis holds, as every other program reads them. */
    async published() {
      const text = String(await client.send('GET', ['sluice:{limits}:d:crm']))
      return { rules: parsePublished(text).rules, version: (JSON.parse(text) as { version: number }).version }
    },
    /** Takes as another program does, by what is published; resolves to how many units it got. */
    async take(want: number): Promise<number> {
      const { rules, version } = await this.published()
      const answer = await new RedisLimiter(client).reserve({
        id: randomUUID(),
        buckets: [{ name: 'crm', rules, version }],
        items: [{ want, takes: [{ bucket: 0, units: 1 }] }],
      })
      return answer.isDecided ? (answer.results[0]?.granted ?? 0) : -1
    },
  }
}

it.concurrent.for([
  { older: '4/h', newer: '20/h', left: 16 },
  { older: '20/h', newer: '4/h', left: 0 },
] as const)(
  '$older, then $newer: Redis grants by both, and by the newer alone later',
  async ({ older, newer, left }, context) => {
    const at = await stage(context)
    const old = await at.process({ window: older })
    await old.sluice.work([old.call])
    await old.sluice.waitFor(await old.sluice.send(old.call, {}))
    const young = await at.process({ window: newer })
    await young.sluice.work([young.call])
    await young.sluice.waitFor(await young.sluice.send(young.call, {}))
    await until(async () => (await at.published()).rules.length === 2, 'both are published')
    // Two jobs have run: the stricter definition leaves two, and the other one is charged too.
    expect(await at.take(30)).toBe(2)
    const last = await young.sluice.send(young.call, {})
    await until(async () => (await young.sluice.why(last))?.reasons[0]?.limit === 'crm', 'it waits for the limit')

    await old.sluice.close()
    await young.sluice.db.query(`update sluice.limit_source set seen_at = '-infinity'`)
    await until(async () => (await at.published()).rules.length === 1, 'the older one is gone')
    if (left === 0) {
      expect((await young.sluice.why(last))?.state).toBe('waiting')
      return expect(await at.take(30)).toBe(0)
    }
    await young.sluice.waitFor(last)
    expect(await at.take(30)).toBe(left - 1)
  },
)

it.concurrent('a process that joins a limit with a narrow margin takes by the wide one in Redis, too, from its first take on', async ({
  onTestFinished,
}) => {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const store = (await freshDatabase()).url
  const client = await connectRedis(redis.port)
  onTestFinished(() => client.close())
  const [crm, other] = [limit('crm', { rate: '100/s' }), limit('other', { rate: '100/s' })]
  const process = async () => {
    const sluice = await Sluice.open({ store, redis: redis.url })
    onTestFinished(() => sluice.close())
    return sluice
  }
  const one = await process()
  await one.takes.take(crm)
  const narrow = { ...crm, ...rulesOf('crm', { rate: '100/s' }, { grantUs: 10_000, transitUs: 5_000 }) }
  const newest = `select max(version) as version from sluice.limit_def where name = 'crm'`
  const [{ version } = { version: 0 }] = await one.db.query<{ version: number }>(newest)
  expect(await putAdapted(one.db, 'crm', { version, numbers: narrow, known: 1 })).toBe(true)
  const two = await process()
  // From then on it knows the narrow margin.
  await two.takes.take(other)
  await two.takes.take(crm)
  const [row] = await one.db.query<{ version: number; ms: number }>(
    `select version, ((spec ->> 'transitUs')::int + (spec ->> 'grantUs')::int) / 1000 as ms
     from sluice.limit_def where name = 'crm' order by version desc limit 1`,
  )
  expect(row?.ms).toBe(200)
  const read = `return cmsgpack.unpack(redis.call('HGET', KEYS[1], 's'))[1]`
  expect(await client.send('EVAL', [read, '1', 'sluice:{limits}:b:crm'])).toBe(row?.version)
})

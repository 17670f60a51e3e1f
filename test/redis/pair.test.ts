/** A take of two limits that are shared in Redis: all or nothing there too. */
import { randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { limit } from '../../src/index.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { freshRedis } from '../servers/redis.ts'
import { freshSluice } from '../servers/sluice.ts'

const crm = limit('crm', { rate: '20/h', burst: 20, by: 'account', published: true })
const total = limit('total', { rate: '12/h', burst: 12, published: true })

const { server: redis, client } = await freshRedis()
const sluice = await freshSluice({ redis: redis.url })

/** Takes as another program does, which knows only Redis; resolves to how many grants it got. */
async function foreign(name: string, rules: typeof crm.rules, want: number): Promise<number> {
  const definition = await client.send('GET', [`sluice:{limits}:d:${name.split(':')[0]}`])
  const { version } = JSON.parse(String(definition)) as { version: number }
  const answer = await new RedisLimiter(client).reserve({
    id: randomUUID(),
    buckets: [{ name, rules, version }],
    items: [{ want, takes: [{ bucket: 0, units: 1 }] }],
  })
  return answer.isDecided ? (answer.results[0]?.granted ?? 0) : -1
}

it('the pair takes both there or none, never leaks past a total that others use too, and settles', async () => {
  const options = { key: { crm: 'a' } }
  const lease = await sluice.takes.take([crm, total], { ...options, cost: 3 })
  expect(await foreign('total', total.rules, 7)).toBe(7)
  // The store has room for nine more, Redis for two.
  const late = sluice.takes.take([crm, total], { ...options, cost: 5, maxWaitMs: 1_000 })
  await expect(late).rejects.toMatchObject({ code: 'SLUICE_TAKE_TIMEOUT' })
  await lease.settle({ crm: 1 })
  // Sends to Redis what is left to send.
  await sluice.close()
  expect(await foreign('crm:a', crm.rules, 20)).toBe(19)
  expect(await foreign('total', total.rules, 12)).toBe(2)
})

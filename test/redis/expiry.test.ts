/** How long keys of buckets are kept, which not each grant prolongs; and for how long nothing has changed in a bucket. */
import { randomUUID } from 'node:crypto'
import { beforeAll, expect, it } from 'vitest'
import { RedisLimiter, scriptOf } from '../../src/redis/limiter.ts'
import { freshRedis } from '../servers/redis.ts'
import { bucket, decided } from './calls.ts'
import { onStage, setClock } from './stage.ts'

const second = 1_000_000
/** Longer than any key is kept here; the test sets it to see whether a call sets another. */
const markMs = 1e12
let nowUs = 1_700_000_000 * second
const { client } = await freshRedis()
const limiter = new RedisLimiter(client, { timeoutMs: 60_000 }, (name) => onStage(scriptOf(name)))
beforeAll(async () => {
  await setClock(client, nowUs)
  await limiter.begin({ owner: 'sluice', epoch: randomUUID(), closeUs: 0 })
})

const ttlMs = async (name: string) => Number(await client.send('PTTL', [limiter.keyOf(name)]))

it('a key in use is always kept for a minute more than it matters, and not set to expire at each grant', async () => {
  const flow = bucket('flow', { rate: '6000/min' })
  const [rule] = flow.rules
  let keptUntilUs = 0
  let prolonged = 0
  for (let i = 0; i < 60; i++) {
    await setClock(client, (nowUs += (1 + (i % 8)) * second))
    await client.send('PEXPIRE', [limiter.keyOf('flow'), String(markMs)])
    decided(
      await limiter.reserve({
        id: randomUUID(),
        buckets: [flow],
        items: [{ want: 1, takes: [{ bucket: 0, units: 1 }] }],
      }),
    )
    const ms = await ttlMs('flow')
    const isSet = ms > 0 && ms < markMs / 2
    if (isSet) [keptUntilUs, prolonged] = [nowUs + ms * 1_000, prolonged + 1]
    expect(keptUntilUs).toBeGreaterThan(nowUs + 3 * (rule?.spanUs ?? Infinity) + 59 * second)
  }
  expect(prolonged).toBeGreaterThan(5)
  expect(prolonged).toBeLessThan(20)
})

it('a key does not expire while a job runs, and does when all have ended', async () => {
  const buckets = [bucket('places', { rate: '6000/min', concurrency: 2 })]
  const take = async () =>
    decided(
      await limiter.reserve({ id: randomUUID(), buckets, items: [{ want: 1, takes: [{ bucket: 0, units: 1 }] }] }),
    )
  const end = async () => decided(await limiter.settle({ id: randomUUID(), buckets, acts: [{ bucket: 0, ended: 1 }] }))
  for (let i = 0; i < 3; i++) {
    await take()
    expect(await ttlMs('places')).toBe(-1)
    await take()
    await end()
    expect(await ttlMs('places')).toBe(-1)
    await end()
    expect(await ttlMs('places')).toBeGreaterThan(0)
  }
})

it('a call that is denied learns for how long its bucket has granted nothing and got nothing back', async () => {
  const [slow, first] = [bucket('slow', { rate: '10/h', burst: 2 }), randomUUID()]
  const ask = async (id = randomUUID()) => {
    const items = [{ want: 1, takes: [{ bucket: 0, units: 2 }] }]
    return decided(await limiter.reserve({ buckets: [slow], aheadUs: 0, id, items }))[0]
  }
  expect(await ask(first)).toMatchObject({ granted: 1 })
  for (const quietUs of [3 * second, 6 * second]) {
    await setClock(client, (nowUs += 3 * second))
    expect(await ask()).toMatchObject({ granted: 0, quietUs })
  }
  const acts = [{ bucket: 0, grant: first, more: -1 }]
  expect(decided(await limiter.settle({ id: randomUUID(), buckets: [slow], acts }))).toEqual([-1])
  await setClock(client, (nowUs += second))
  expect(await ask()).toMatchObject({ granted: 0, quietUs: second })
})

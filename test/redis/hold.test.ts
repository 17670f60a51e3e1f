/** Holds of buckets in Redis, and how they end. */
import { randomUUID } from 'node:crypto'
import { beforeEach, expect, it } from 'vitest'
import { RedisLimiter, scriptOf } from '../../src/redis/limiter.ts'
import { freshRedis } from '../servers/redis.ts'
import { bucket, decided } from './calls.ts'

const { client } = await freshRedis()
const limiter = new RedisLimiter(client)
beforeEach(async () => {
  await client.send('FLUSHALL', [])
  await limiter.begin({ owner: 'sluice', epoch: randomUUID(), closeUs: 0 })
})
const one = bucket('one', { window: '10/h' })
const take = async () => {
  const items = [{ want: 1, takes: [{ bucket: 0, units: 1 }] }]
  return decided(await limiter.reserve({ id: randomUUID(), buckets: [one], items }))[0]
}
/** @param by the limiter that does it */
const hold = async (holdUs: number, by = limiter) =>
  decided(await by.settle({ id: randomUUID(), buckets: [one], acts: [{ bucket: 0, holdUs }] }))

it('end, and nothing else ends that holds the bucket', async () => {
  await hold(50_000_000)
  await hold(60_000_000)
  expect(await take()).toMatchObject({ granted: 0 })
  for (let i = 0; i < 2; i++) {
    await hold(0)
    expect(await take()).toMatchObject({ granted: 1 })
  }
  const succeed = async () => {
    const instead = String((await limiter.readEpoch()).id)
    const next = { epoch: randomUUID(), owner: 'sluice', instead, closeUs: 30_000_000 }
    expect(await limiter.begin(next)).toMatchObject({ isDecided: true })
  }
  // A new epoch closes it for 30 s; it stays closed when a longer hold is over.
  await succeed()
  await hold(60_000_000)
  expect((await take())?.waitUs).toBeGreaterThan(50_000_000)
  await hold(0)
  const after = await take()
  expect([after?.granted, (after?.waitUs ?? 0) > 20_000_000, (after?.waitUs ?? 0) <= 31_000_000]).toEqual([
    0,
    true,
    true,
  ])
  // Nothing shows for how long another epoch closes it beneath a longer hold, so that goes on.
  await hold(60_000_000)
  await succeed()
  await hold(0)
  expect((await take())?.waitUs).toBeGreaterThan(50_000_000)
})

it('go on if an older version of the script has set them, or made them longer', async () => {
  const older = new RedisLimiter(client, {}, (name) =>
    name === 'settle' ? scriptOf(name).replace(/redis.call\('HSET', bucket.key, 'r'.*\)/, '') : scriptOf(name),
  )
  await hold(50_000_000)
  await hold(60_000_000, older)
  await hold(0)
  expect((await take())?.waitUs).toBeGreaterThan(50_000_000)
})

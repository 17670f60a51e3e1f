/** Values of other programs under our keys: such a bucket grants nothing, and all others go on; such an epoch begins anew. */
import { randomUUID } from 'node:crypto'
import { beforeEach, describe, expect, it } from 'vitest'
import { limit } from '../../src/index.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { freshRedis } from '../servers/redis.ts'
import { until } from '../until.ts'
import { bucket, decided, seedOf } from './calls.ts'
import { counted, redisFor } from './peer-stage.ts'

const { client } = await freshRedis()
const limiter = new RedisLimiter(client)
const buckets = ['text', 'hash', 'sound'].map((name) => bucket(name, { window: '9/min' }))

/** Writes what another program might. */
async function write(): Promise<void> {
  await client.send('SET', [limiter.keyOf('text'), 'mine'])
  await client.send('DEL', [limiter.keyOf('hash')])
  await client.send('HSET', [limiter.keyOf('hash'), 's', 'mine'])
}

const written = async () => [
  await client.send('GET', [limiter.keyOf('text')]),
  await client.send('HGETALL', [limiter.keyOf('hash')]),
]

const items = buckets.map((_, i) => ({ want: 1, takes: [{ bucket: i, units: 1 }] }))

describe('a bucket whose key has a value of another program', () => {
  beforeEach(async () => {
    await client.send('FLUSHALL', [])
    await limiter.begin({ owner: 'one', epoch: 'a', closeUs: 0, stores: 2 })
    await write()
  })

  it('has no room, and is named; the others of the call have, and that value stays', async () => {
    for (const how of [{}, { aheadUs: 0 }]) {
      const answer = decided(await limiter.reserve({ id: randomUUID(), buckets, items, ...how }))
      expect(answer).toMatchObject([
        { granted: 0, lacking: 0, cause: 'unreadable' },
        { granted: 0, lacking: 1, cause: 'unreadable' },
        { granted: 1, lacking: undefined },
      ])
      expect(answer[0]?.waitUs).toBeGreaterThan(50_000_000)
    }
    expect(await written()).toEqual(['mine', ['s', 'mine']])
  })

  it('takes no report, and the others of the call do', async () => {
    const id = randomUUID()
    await limiter.reserve({ id, buckets, items })
    const acts = buckets.flatMap((_, i) => [
      { bucket: i, grant: id, more: -1 },
      { bucket: i, more: 2 },
      { bucket: i, holdUs: 1_000 },
      { bucket: i, grant: id, renewUs: 1_000, places: 1 },
    ])
    const effects = decided(await limiter.settle({ id: randomUUID(), buckets, acts }))
    expect(effects).toEqual([0, 0, 0, 0, 0, 0, 0, 0, -1, 2, expect.any(Number), 1])
    expect(await written()).toEqual(['mine', ['s', 'mine']])
  })

  it('keeps no database from the epoch, and a new epoch replaces that value', async () => {
    const seeds = buckets.map((one) => seedOf(one))
    const joining = { id: 'b', owner: 'two', stores: 2, epoch: 'a', seeds, delayUs: 0 }
    expect(await limiter.join(joining)).toMatchObject({ isDecided: true })
    expect(await written()).toEqual(['mine', ['s', 'mine']])
    await limiter.begin({ owner: 'one', epoch: 'c', instead: 'a', closeUs: 0, seeds, stores: 2 })
    expect(decided(await limiter.reserve({ id: randomUUID(), buckets, items }))).toMatchObject([
      { granted: 1 },
      { granted: 1 },
      { granted: 1 },
    ])
  })
})

it('jobs of other keys run; the key is parked with the cure, takes of it fail, and its jobs run when it is released', async (context) => {
  const { connect, open } = await redisFor(context)
  const { sluice, errors } = await open()
  const crm = limit('crm', { rate: '100/s', by: 'n', published: true })
  const { call, ran } = counted([crm] as never)
  const mine = await connect()
  const key = 'sluice:{limits}:b:crm:1'
  await mine.send('SET', [key, 'mine'])
  await sluice.work([call])
  await sluice.sendMany(call, [{ n: 0 }, { n: 1 }, { n: 2 }] as never)
  await until(() => ran.length === 2)
  await until(async () => (await sluice.parked()).length === 1)
  expect(await sluice.parked()).toMatchObject([{ kind: 'limit', name: 'crm:1', error: expect.stringContaining(key) }])
  await expect(sluice.takes.take(crm as never, { key: 1 } as never)).rejects.toMatchObject({ code: 'SLUICE_PARKED' })
  expect(new Set(ran)).toEqual(new Set([0, 2]))
  expect(errors.filter((line) => line.includes(key))).toHaveLength(1)
  await mine.send('DEL', [key])
  expect(await sluice.release('crm:1')).toBe(true)
  await until(() => ran.length === 3)
})

it('an epoch whose key has such a value is lost, and a worker begins another in its place', async (context) => {
  const { connect, open } = await redisFor(context)
  const mine = await connect()
  const key = 'sluice:{limits}:epoch'
  await mine.send('SET', [key, 'mine'])
  const { sluice } = await open()
  const { call, ran } = counted([limit('crm', { rate: '100/s', published: true })] as never)
  await sluice.work([call])
  await sluice.send(call, { n: 0 } as never)
  await until(() => ran.length === 1)
  await mine.send('SET', [key, 'mine'])
  await sluice.send(call, { n: 0 } as never)
  await until(() => ran.length === 2)
  expect(await mine.send('TYPE', [key])).toBe('hash')
})

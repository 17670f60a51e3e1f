/** Several databases under one limit in Redis: how an epoch that one begins is completed by the others. */
import { randomUUID } from 'node:crypto'
import { beforeEach, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { silent } from '../../src/core/log.ts'
import { limit } from '../../src/limits/limit.ts'
import type { RedisBucket, Seed } from '../../src/redis/definition.ts'
import { SharedDefinitions } from '../../src/redis/definitions.ts'
import type { Granted, Stood } from '../../src/redis/call.ts'
import { RedisLimiter, scriptOf } from '../../src/redis/limiter.ts'
import { freshRedis } from '../servers/redis.ts'
import { bucket, decided, seedOf } from './calls.ts'
import { onStage, setClock } from './stage.ts'

const startUs = 1_700_000_040_000_000
const second = 1_000_000

const { client } = await freshRedis()
const limiter = new RedisLimiter(client, { timeoutMs: 60_000 }, (name) => onStage(scriptOf(name)))
beforeEach(async () => {
  await client.send('FLUSHALL', [])
  await setClock(client, startUs)
})

const begin = (epoch: string, seeds: Seed[] = [], more = {}) =>
  limiter.begin({ epoch, owner: 'one', stores: 2, seeds, withinMs: 60_000, ...more })
const join = (id: string, seeds: Seed[] = [], more = {}) =>
  limiter.join({ id, owner: 'two', stores: 2, epoch: 'a', seeds, delayUs: 0, ...more })
const own = (name: string, options: Parameters<typeof bucket>[1]): RedisBucket => ({
  ...bucket(name, options),
  isOwn: true,
})
const reserve = async (one: RedisBucket, want: number, epoch?: string, id: string = randomUUID()): Promise<Granted> => {
  const items = [{ want, takes: [{ bucket: 0, units: 1 }] }]
  const named = epoch === undefined ? {} : { epoch }
  return decided(await limiter.reserve({ id, buckets: [one], items, aheadUs: 0, ...named }))[0] as Granted
}
const used = (one: RedisBucket, ...newest: number[]): Seed => seedOf(one, { parts: one.rules.map(() => newest) })

describe('a window in an epoch that two databases share', () => {
  const minute = own('minute', { window: '10/min', transit: 0 })

  it('is shut until the other has added what it granted; then both count', async () => {
    expect(await begin('a', [used(minute, 0, 0, 3)])).toMatchObject({ isDecided: true })
    await setClock(client, startUs + 3 * second)
    expect(await reserve(minute, 9)).toMatchObject({ granted: 0, cause: 'held' })
    expect(await join('b', [used(minute, 0, 4)])).toMatchObject({ isDecided: true })
    expect(await reserve(minute, 9, 'b')).toMatchObject({ granted: 3 })
    expect(await reserve(minute, 9, 'a')).toMatchObject({ granted: 0, cause: 'used' })
  })

  it('opens without the other one when nothing from before the epoch counts any more', async () => {
    await begin('a')
    await setClock(client, startUs + 58 * second)
    expect(await reserve(minute, 9)).toMatchObject({ granted: 0, cause: 'held' })
    await setClock(client, startUs + 63 * second)
    expect(await reserve(minute, 9)).toMatchObject({ granted: 9 })
    // What is added late counts beside what was granted meanwhile.
    await join('b', [used(minute, 1)])
    expect(await reserve(minute, 9)).toMatchObject({ granted: 0 })
  })

  it('counts what a database adds once, whatever ids it joins by', async () => {
    await begin('a')
    await join('b', [used(minute, 4)])
    expect(await join('b', [used(minute, 4)])).toMatchObject({ isDecided: true })
    expect(await join('c', [used(minute, 4)], { instead: 'b' })).toMatchObject({ isDecided: true })
    expect(await join('b', [used(minute, 4)])).toMatchObject({ why: 'lost', epoch: 'a' })
    const items = [{ want: 1, takes: [{ bucket: 0, units: 1 }] }]
    const old = await limiter.reserve({ id: randomUUID(), buckets: [minute], items, epoch: 'b' })
    expect(old).toMatchObject({ why: 'lost' })
    expect(await reserve(minute, 9, 'c')).toMatchObject({ granted: 6 })
  })

  it('gives back what a database did not use of what it added', async () => {
    await begin('a')
    await join('b', [used(minute, 4)])
    const acts = [{ bucket: 0, grant: 'b', more: -2 }]
    await limiter.settle({ id: randomUUID(), epoch: 'b', buckets: [minute], acts })
    expect(await reserve(minute, 10)).toMatchObject({ granted: 8 })
  })
})

it('a rate begins full, because the debts of two databases do not add up', async () => {
  const rate = own('rate', { rate: '60/min', burst: 10 })
  await begin('a', [seedOf(rate)])
  await join('b')
  await setClock(client, startUs + second)
  expect(await reserve(rate, 9)).toMatchObject({ granted: 0 })
  await setClock(client, startUs + 4 * second)
  expect(await reserve(rate, 9)).toMatchObject({ granted: 3 })
})

it('a quota has the units of both in each period', async () => {
  const hours = own('hours', { quota: '10/h', transit: 0 })
  const start = Math.floor(startUs / 3_600_000_000) * 3_600_000_000
  const period = [start - 3_600_000_000, start, start + 3_600_000_000]
  const seed = (n: number) => seedOf(hours, { spent: [[...period, 0, n, 0, hours.rules[0]?.quota?.marginUs ?? 0]] })
  await begin('a', [seed(3)])
  await join('b', [seed(4)])
  await setClock(client, startUs + 3 * second)
  expect(await reserve(hours, 9)).toMatchObject({ granted: 3 })
})

it('a bucket that other programs take from stays closed, whoever has joined', async () => {
  const minute = bucket('minute', { window: '10/min', transit: 0 })
  await begin('a', [used(minute, 1)])
  await join('b', [used(minute, 1)])
  await setClock(client, startUs + 30 * second)
  expect(await reserve(minute, 1)).toMatchObject({ granted: 0 })
  await setClock(client, startUs + 65 * second)
  expect(await reserve(minute, 10)).toMatchObject({ granted: 10 })
})

describe('the ledger of a database with many keys', () => {
  const minute = own('minute', { window: '10/min', transit: 0 })
  const seeds = Array.from({ length: 4_100 }, (_, i) => used({ ...minute, name: `minute:${i}` }, 4))
  const [first, last] = [seeds.at(0)?.bucket ?? minute, seeds.at(-1)?.bucket ?? minute]
  beforeEach(async () => {
    await begin('a')
    await setClock(client, startUs + 3 * second)
  })

  it('is added in portions, so that Redis is free in between; it counts when all are added', async () => {
    const granted: number[] = []
    const before = async () => void granted.push((await reserve(first, 9)).granted)
    expect(await join('b', seeds, { before })).toMatchObject({ isDecided: true })
    expect(granted).toEqual([0, 0, 0])
    for (const one of [first, last]) expect(await reserve(one, 9, 'b')).toMatchObject({ granted: 6 })
  })

  it('counts once, though a try broke off after some of its portions', async () => {
    let portions = 0
    const before = async () => {
      if (++portions === 3) throw new Error('cut')
    }
    await expect(join('b', seeds, { before })).rejects.toThrow('cut')
    expect(await reserve(first, 9)).toMatchObject({ granted: 0, cause: 'held' })
    expect(await limiter.readEpoch('two')).toMatchObject({ mine: undefined })
    expect(await join('c', seeds)).toMatchObject({ isDecided: true })
    for (const one of [first, last]) expect(await reserve(one, 9, 'c')).toMatchObject({ granted: 6 })
  })
})

describe('an epoch', () => {
  it('is begun anew by any of its databases, and then joined by the others', async () => {
    await begin('a')
    await join('b')
    expect(await limiter.readEpoch('two')).toMatchObject({ id: 'a', mine: 'b', stores: 2 })
    expect(await limiter.readEpoch('three')).toMatchObject({ id: 'a', mine: undefined })
    expect(await begin('c', [], { owner: 'two', instead: 'a' })).toMatchObject({ isDecided: true })
    expect(await limiter.readEpoch('one')).toMatchObject({ id: 'c', owner: 'two', mine: undefined, stores: 2 })
    expect(await join('b')).toMatchObject({ why: 'lost', epoch: 'c' })
    expect(await join('d', [], { owner: 'one', epoch: 'c' })).toMatchObject({ isDecided: true })
  })

  it('has places for as many databases as were given', async () => {
    expect(await begin('a', [], { stores: 1 })).toMatchObject({ isDecided: true })
    expect(await join('b')).toMatchObject({ why: 'owned', owner: 'one' })
    expect(await begin('b', [], { owner: 'two', instead: 'a' })).toMatchObject({ why: 'owned' })
    // The first one has been given another number by now.
    expect(await join('a', [], { owner: 'one' })).toMatchObject({ isDecided: true })
    expect(await join('b')).toMatchObject({ isDecided: true })
    expect(await join('c', [], { owner: 'three' })).toMatchObject({ why: 'owned' })
  })
})

describe('databases with different definitions', () => {
  const published = (version: number, window: `${number}/min`, isPublished = false) => {
    const { name, rules } = bucket('crm', { window })
    return [{ name, rules, version, isKeyed: false, grantUs: 100_000, isPublished }]
  }

  it('go by the one that was changed last, and not back to it by one that has not followed', async () => {
    const [first] = await limiter.agree('one', published(3, '10/min'))
    const [same] = await limiter.agree('two', published(7, '10/min'))
    expect(same).toMatchObject({ version: first?.version, text: undefined, isPublished: false })
    const [changed] = await limiter.agree('one', published(4, '20/min'))
    expect(changed?.version).toBeGreaterThan(first?.version ?? 0)
    const [behind] = await limiter.agree('two', published(7, '10/min'))
    expect(behind).toMatchObject({ version: changed?.version, text: expect.stringContaining('"room":20') })
    // A process that still has the definition of before takes nothing back, either.
    expect((await limiter.agree('one', published(3, '10/min')))[0]?.version).toBe(changed?.version)
    expect((await limiter.agree('two', published(8, '20/min')))[0]).toMatchObject({ text: undefined })
    const [third] = await limiter.agree('two', published(9, '30/min'))
    expect(third?.version).toBeGreaterThan(changed?.version ?? 0)
  })

  it('keep to it when Redis has lost it, whichever of them comes first, and to what was changed meanwhile', async () => {
    const agree = async (owner: string, version: number, window: `${number}/min`, stood?: Stood) => {
      const [agreed] = await limiter.agree(
        owner,
        published(version, window).map((one) => ({ ...one, stood })),
      )
      if (agreed === undefined) throw new Error('nothing was agreed on')
      return agreed
    }
    await agree('one', 3, '10/min')
    await agree('two', 7, '10/min')
    const one = await agree('one', 4, '20/min')
    const two = await agree('two', 7, '10/min')
    await client.send('FLUSHALL', [])
    expect(await agree('two', 7, '10/min', two.stood)).toEqual(two)
    expect(await agree('one', 4, '20/min', one.stood)).toEqual(one)
    await client.send('FLUSHALL', [])
    await agree('two', 7, '10/min', two.stood)
    const changed = await agree('one', 5, '30/min', one.stood)
    expect(changed.text).toBeUndefined()
    expect((await agree('two', 7, '10/min', two.stood)).stood).toMatchObject({ ...changed.stood, own: 7 })
    // A process that had not looked since knows less than another, which comes later.
    await client.send('FLUSHALL', [])
    await agree('two', 7, '10/min', two.stood)
    expect(await agree('one', 5, '30/min', changed.stood)).toEqual(changed)
  })

  it('remember what they agreed on', async () => {
    const rows = [
      { name: 'crm', key: '', version: 1, spec: { rules: limit('crm', { window: '10/min' }).rules, grantUs: 100_000 } },
    ]
    const run = (name: string) =>
      Promise.resolve(name.endsWith('read_definitions') ? rows : [{ epoch: 'a', owner: 'two', stores: 2 }])
    const definitions = new SharedDefinitions({ run, clock: systemClock, log: silent } as never, limiter, 1)
    await definitions.readNow()
    await limiter.agree('one', published(1, '10/min'))
    await limiter.agree('one', published(2, '20/min'))
    const capacity = () => definitions.bucket('crm')?.rules[0]?.capacity
    await definitions.readNow()
    expect(capacity()).toBe(20)
    await client.send('FLUSHALL', [])
    await definitions.readNow()
    expect(capacity()).toBe(20)
  })

  it('publish for all what one of them publishes', async () => {
    await limiter.agree('one', published(3, '10/min'))
    expect((await limiter.agree('two', published(1, '10/min', true)))[0]).toMatchObject({ isPublished: true })
    const [one] = await limiter.agree('one', published(3, '10/min'))
    expect(one).toMatchObject({ isPublished: true })
    const text = String(await client.send('GET', ['sluice:{limits}:d:crm']))
    expect(JSON.parse(text)).toMatchObject({ version: one?.version, keyed: false, rules: [{ room: 10 }] })
  })
})

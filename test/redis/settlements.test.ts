/** Settlements in Redis when replies are lost, time passes, and epochs change: each counts once, or is lost to the safe side. */
import { describe, expect, it, onTestFinished } from 'vitest'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { newId } from '../../src/core/hash.ts'
import type { RedisClient } from '../../src/redis/client.ts'
import { RedisLimiter, scriptOf } from '../../src/redis/limiter.ts'
import type { SharedDefinitions } from '../../src/redis/definitions.ts'
import { createGrantId, SettlementQueue, type SettlementReport } from '../../src/redis/settlements.ts'
import { bucket, decided, seedOf } from './calls.ts'
import { onStage, setClock } from './stage.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'

const one = bucket('one', { window: '10/h' })

/** A bucket of ten in Redis under an epoch, and settlements of it by a clock that tests move. */
async function setting() {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const client = await connectRedis(redis.port)
  onTestFinished(() => client.close())
  /** `told`: calls with settlements that Redis has received; `lost`: how many further replies get lost. */
  const state = { told: 0, lost: 0, failures: 0, laterMs: 0, epoch: newId() as string | undefined }
  const losing: RedisClient = {
    async send(command, args) {
      const reply = await client.send(command, args)
      if (!String(args.at(-1)).includes('"acts"')) return reply
      state.told++
      if (state.lost-- > 0) throw new Error('the connection was lost')
      return reply
    },
  }
  const limiter = new RedisLimiter(losing)
  await limiter.begin({ epoch: String(state.epoch), owner: 'test', closeUs: 0 })
  const clock: Clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + state.laterMs }
  const definitions = { know: async () => {}, bucket: () => one } as unknown as SharedDefinitions
  const words = new SettlementQueue({
    limiter,
    definitions,
    clock,
    current: () => state.epoch,
    cap: () => ({}),
    onFailure: () => void state.failures++,
  })
  return {
    state,
    words,
    clock,
    /** Grants this number of units; resolves to the id of the grant. */
    async granted(want: number): Promise<string> {
      const grant = createGrantId(String(state.epoch))
      const items = [{ want, takes: [{ bucket: 0, units: 1 }] }]
      expect(decided(await limiter.reserve({ id: grant, buckets: [one], items }))).toMatchObject([{ granted: want }])
      return grant
    },
    /** Takes the units that are left. */
    async left() {
      const items = [{ want: 10, takes: [{ bucket: 0, units: 1 }] }]
      return decided(await limiter.reserve({ id: newId(), buckets: [one], items }))[0]
    },
    add(word: SettlementReport): Promise<void> {
      words.add(word)
      return words.waitUntilSent()
    },
    /** Lets Redis forget the replies to calls, which it remembers for a minute. */
    async forgetAnswers(): Promise<void> {
      await client.send('DEL', (await client.send('KEYS', ['sluice:{limits}:a:*'])) as string[])
    },
    /** Begins another epoch, by a ledger in which this number of the bucket's units were granted. */
    async succeed(units: number): Promise<string> {
      const next = newId()
      const parts = [[units, ...Array.from({ length: 60 }, () => 0)]]
      const seeds = [seedOf(one, { parts })]
      const beginning = { epoch: next, owner: 'test', instead: String(state.epoch), closeUs: 0, seeds }
      expect(await limiter.begin(beginning)).toMatchObject({ isDecided: true })
      state.epoch = next
      return next
    },
  }
}

describe('lost replies to settlements', () => {
  it('do not refund a part twice', async () => {
    const { state, words, granted, left, add } = await setting()
    const grant = await granted(5)
    state.lost = 2
    await add({ bucket: 'one', epoch: String(state.epoch), grant, more: -1 })
    for (let n = 1; n <= 2; n++) {
      words.sendWaiting()
      await words.waitUntilSent()
    }
    expect([state.told, state.failures]).toEqual([3, 2])
    expect(await left()).toMatchObject({ granted: 6 })
  })

  it('are retried until Redis has forgotten the call, and settlements that waited that long are dropped as well', async () => {
    const { state, granted, left, add, forgetAnswers } = await setting()
    const [grant, epoch] = [await granted(5), String(state.epoch)]
    state.lost = 2
    await add({ bucket: 'one', epoch, grant, more: -1 })
    // This one waits for the outcome of the one before.
    await add({ bucket: 'one', epoch, grant, more: -1 })
    expect(state.failures).toBe(2)
    state.laterMs = 50_001
    await forgetAnswers()
    await add({ bucket: 'one', epoch, grant, more: -1 })
    expect(state.told).toBe(3)
    // Two of five: the one whose call arrived, and the last one.
    expect(await left()).toMatchObject({ granted: 7 })
  })
})

describe('a request that is charged once more', () => {
  it('is charged before the call resolves, and the call rejects if it may not have been', async () => {
    const { state, words, granted, left } = await setting()
    await granted(5)
    await words.confirm([{ bucket: 'one', again: 2 }])
    state.lost = 1
    await expect(words.confirm([{ bucket: 'one', again: 2 }])).rejects.toThrow('the connection was lost')
    // The lost call had arrived.
    expect(await left()).toMatchObject({ granted: 1 })
    expect(state).toMatchObject({ told: 2, failures: 0 })
  })

  it('is charged in the epoch in force, and not at all while none is known', async () => {
    const { state, words, granted, left, succeed } = await setting()
    await granted(5)
    await succeed(5)
    await words.confirm([{ bucket: 'one', again: 2 }])
    expect(await left()).toMatchObject({ granted: 3 })
    await expect(words.confirm([{ bucket: 'one', again: 2 }], 'an earlier one')).rejects.toThrow(
      'another epoch has begun',
    )
    state.epoch = undefined
    await expect(words.confirm([{ bucket: 'one', again: 2 }])).rejects.toThrow('no epoch is known')
  })
})

it("settlements make no room when Redis's clock steps forward", async () => {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const client = await connectRedis(redis.port)
  onTestFinished(() => client.close())
  const limiter = new RedisLimiter(client, {}, (name) => onStage(scriptOf(name)))
  const capUs = 1_790_000_001_000_000
  await setClock(client, capUs - 1_000_000)
  await limiter.begin({ epoch: 'e', owner: 'test', closeUs: 0 })
  const words = new SettlementQueue({
    limiter,
    definitions: { know: async () => {}, bucket: () => one } as unknown as SharedDefinitions,
    clock: systemClock,
    current: () => 'e',
    cap: () => ({ capUs }),
    onFailure: (error) => expect(error).toBeUndefined(),
  })
  const items = [{ want: 20, takes: [{ bucket: 0, units: 1 }] }]
  const reserve = async () => decided(await limiter.reserve({ id: newId(), buckets: [one], items, capUs }))[0]
  expect(await reserve()).toMatchObject({ granted: 10 })
  await setClock(client, capUs + 7_200_000_000)
  await words.confirm([{ bucket: 'one', again: 1 }])
  expect(await reserve()).toMatchObject({ granted: 0 })
})

describe('after another epoch has begun', () => {
  it('an earlier refund is not sent, because the ledger from which the epoch began contains it', async () => {
    const { state, granted, left, add, succeed } = await setting()
    const [grant, before] = [await granted(5), String(state.epoch)]
    await succeed(4)
    await add({ bucket: 'one', epoch: before, grant, more: -1 })
    await add({ bucket: 'one', epoch: before, grant, isUnused: true })
    expect(state.told).toBe(0)
    expect(await left()).toMatchObject({ granted: 6 })
  })

  it('a later refund is made from the charges with which the epoch began', async () => {
    const { state, granted, left, add, succeed } = await setting()
    const grant = await granted(5)
    const epoch = await succeed(5)
    await add({ bucket: 'one', epoch, grant, more: -2 })
    expect(state.told).toBe(1)
    expect(await left()).toMatchObject({ granted: 7 })
  })

  it('usage beyond a grant counts, whenever it is reported', async () => {
    const { state, granted, left, add, succeed } = await setting()
    const [grant, before] = [await granted(5), String(state.epoch)]
    const epoch = await succeed(5)
    await add({ bucket: 'one', epoch: before, grant, more: 2 })
    await add({ bucket: 'one', epoch, grant, more: 1 })
    expect(await left()).toMatchObject({ granted: 2 })
  })

  it('a refund of a grant of this epoch works under the id of the previous one', async () => {
    const { state, granted, left, add, succeed } = await setting()
    const before = String(state.epoch)
    await succeed(0)
    await add({ bucket: 'one', epoch: before, grant: await granted(5), more: -3 })
    expect(await left()).toMatchObject({ granted: 8 })
  })
})

it('settlements wait while no epoch is known, and are sent when one is', async () => {
  const { state, words, granted, left, add } = await setting()
  const [grant, epoch] = [await granted(5), String(state.epoch)]
  state.epoch = undefined
  await add({ bucket: 'one', epoch, grant, isUnused: true })
  expect([state.told, state.failures]).toEqual([0, 1])
  state.epoch = epoch
  words.sendWaiting()
  await words.waitUntilSent()
  expect(await left()).toMatchObject({ granted: 10 })
})

it("a vendor's silence is held for as long as is left of it", async () => {
  const { state, left, add, clock } = await setting()
  await add({ bucket: 'one', untilMs: clock.monotonicMs() - 1 })
  expect(state.told).toBe(0)
  await add({ bucket: 'one', untilMs: clock.monotonicMs() + 600_000 })
  await until(() => state.told === 1)
  const answer = await left()
  expect(answer?.granted).toBe(0)
  expect(answer?.waitUs).toBeGreaterThan(590_000_000)
  expect(answer?.waitUs).toBeLessThanOrEqual(600_000_000)
})

it('one that is added in the turn in which a call ends is sent, too', async () => {
  /** How many turns of the promises after the answer it is added. */
  for (let turns = 0; turns < 12; turns++) {
    const told: unknown[] = []
    let answer = () => {}
    const settle = async (call: unknown) => {
      told.push(call)
      await new Promise<void>((resolve) => (answer = resolve))
      return { isDecided: true }
    }
    const words = new SettlementQueue({
      limiter: { settle } as never,
      definitions: { know: async () => {}, read: async () => {}, bucket: () => one },
      clock: systemClock,
      current: () => 'epoch',
      cap: () => ({}),
      onFailure() {},
    })
    const add = () => words.add({ bucket: 'one', grant: 'epoch/a', ended: 1 })
    add()
    await until(() => told.length === 1)
    answer()
    for (let turn = 0; turn < turns; turn++) await Promise.resolve()
    add()
    await until(() => told.length === 2, `the one after ${turns} turns is sent`)
  }
})

import { randomInt, randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { type Bucket, charge, emptyBucket, room } from '../../src/limits/decide.ts'
import type { LimitOptions } from '../../src/limits/limit.ts'
import { type Rule, windowParts } from '../../src/limits/rule.ts'
import type { RedisBucket, Seed } from '../../src/redis/definition.ts'
import type { Beginning, Granted } from '../../src/redis/call.ts'
import { RedisLimiter, scriptOf } from '../../src/redis/limiter.ts'
import { isLong } from '../long.ts'
import { freshRedis } from '../servers/redis.ts'
import { bucket, decided, seedOf } from './calls.ts'
import { onStage, setClock } from './stage.ts'

/** Repeats a run from the values that it has printed. */
const repeat = Number(process.env['SLUICE_TEST_SEED'] ?? randomInt(2 ** 31))
const runs = isLong ? 250 : 80
const startUs = 1_700_000_040_000_000

const { client } = await freshRedis()
const limiter = new RedisLimiter(client, { timeoutMs: 60_000 }, (name) => onStage(scriptOf(name)))
beforeEach(() => anew(startUs))

const anew = async (us: number) => {
  await client.send('FLUSHALL', [])
  await setClock(client, us)
}
const begin = (more: Partial<Beginning>) =>
  limiter.begin({ epoch: randomUUID(), owner: 'sluice', closeUs: 0, withinMs: 60_000, ...more })
const reserve = async (one: RedisBucket, want = 1, more: { id?: string; aheadUs?: number } = {}): Promise<Granted> => {
  const items = [{ want, takes: [{ bucket: 0, units: 1 }] }]
  return decided(await limiter.reserve({ id: randomUUID(), buckets: [one], items, ...more }))[0] as Granted
}
const settle = async (one: RedisBucket, act: { grant: string; more: number } | { ended: number; grant?: string }) =>
  decided(await limiter.settle({ id: randomUUID(), buckets: [one], acts: [{ bucket: 0, ...act }] }))[0]

const anyLimit = fc.constantFrom<LimitOptions>(
  { rate: '200/s', burst: 20 },
  { rate: '60/s', burst: 7 },
  { window: '20/s' },
  { window: '90/min' },
  { rate: '150/s', burst: 9, window: '30/s' },
  { rate: '40/s', burst: 5, quota: '30/min' },
)
const anyRun = fc.record({
  options: anyLimit,
  // The grants of the other limiter, and how much later they come here, in parts of the delay.
  grants: fc.array(
    fc.record({
      us: fc.integer({ min: 0, max: 300_000 }),
      units: fc.integer({ min: 1, max: 9 }),
      late: fc.double({ min: 0, max: 1, noNaN: true }),
    }),
    { minLength: 1, maxLength: 25 },
  ),
  delayUs: fc.constantFrom(0, 1, 60_000, 400_000),
  /** How far the other clock is behind. */
  behindUs: fc.integer({ min: -3_000_000, max: 3_000_000 }),
  holdUs: fc.constantFrom(0, 0, 700_000),
  /** Time left before the end of a minute. */
  leftUs: fc.integer({ min: 0, max: 4_000_000 }),
  asks: fc.array(
    fc.record({
      // The returned wait (null), or this time.
      us: fc.oneof(fc.constant(null), fc.integer({ min: 0, max: 150_000 }), fc.integer({ min: 0, max: 30_000_000 })),
      want: fc.integer({ min: 1, max: 99 }),
    }),
    { minLength: 3, maxLength: 12 },
  ),
})
type Run = typeof anyRun extends fc.Arbitrary<infer T> ? T : never

/** The rules with wider margins of quotas: late grants count where they then would. */
const wider = (rules: readonly Rule[], us: number): Rule[] =>
  rules.map((rule) =>
    rule.quota === undefined ? rule : { ...rule, quota: { ...rule.quota, marginUs: rule.quota.marginUs + us } },
  )

/** A bucket's state as a seed. */
function seedFrom(one: RedisBucket, { holdUs, debt, parts, spent }: Bucket, atUs: number): Seed {
  return {
    bucket: one,
    holdUs: Math.max(0, holdUs - atUs),
    debt,
    parts: one.rules.map(({ partUs }, i) => (partUs > 0 ? (parts[i] ?? []) : [])),
    spent: one.rules.map(({ quota }, i) => {
      const was = spent[i]
      if (quota === undefined || was === undefined) return []
      return [was.beforeUs, was.startUs, was.endUs, was.previous, was.current, was.next, quota.marginUs]
    }),
  }
}

/** The limit in the other limiter, and as it would have been here, by decide.ts. */
function played({ options, grants, delayUs, behindUs, holdUs, leftUs }: Run) {
  const one = bucket('one', options)
  const there = wider(one.rules, delayUs)
  let atUs = startUs - (startUs % 60_000_000) + 60_000_000 - leftUs
  let state = emptyBucket(there, atUs)
  const late: { atUs: number; units: number }[] = []
  for (const grant of grants) {
    const seen = room(there, state, (atUs += grant.us))
    const units = Math.min(grant.units, seen.units)
    state = charge(there, seen.bucket, units)
    late.push({ atUs: atUs + behindUs + Math.floor(grant.late * delayUs), units })
  }
  state = { ...state, holdUs: holdUs === 0 ? 0 : atUs + holdUs }
  const truth = new Truth(one.rules)
  for (const grant of late.sort((a, b) => a.atUs - b.atUs)) truth.charge(grant.atUs, grant.units)
  return { one, there, atUs, state, truth }
}

/** The true usage: of a window from all grants, because its parts begin at other moments by the other clock. */
class Truth {
  readonly #windows: readonly Rule[]
  readonly #others: readonly Rule[]
  readonly #log: { atUs: number; units: number }[] = []
  #bucket: Bucket

  constructor(rules: readonly Rule[]) {
    this.#windows = rules.filter(({ partUs }) => partUs > 0)
    this.#others = rules.filter(({ partUs }) => partUs === 0)
    this.#bucket = emptyBucket(this.#others, startUs - 60_000_000)
  }

  free(nowUs: number): number {
    const since = (fromUs: number) => this.#log.reduce((sum, { atUs, units }) => sum + (atUs > fromUs ? units : 0), 0)
    const free = this.#windows.map(({ capacity: most, partUs }) => most - since(nowUs - windowParts * partUs))
    return Math.max(0, Math.min(room(this.#others, this.#bucket, nowUs).units, ...free))
  }

  charge(nowUs: number, units: number): void {
    this.#bucket = charge(this.#others, room(this.#others, this.#bucket, nowUs).bucket, units)
    this.#log.push({ atUs: nowUs, units })
  }
}

it('seeded units are granted no earlier than without the loss, and no later than the delay and two parts of a window', async () => {
  let [granted, asked, exact] = [0, 0, 0]
  const property = fc.asyncProperty(anyRun, async (run) => {
    // Quotas use both clocks, which have to agree.
    const { delayUs, behindUs } = run.options.quota === undefined ? run : { ...run, behindUs: 0 }
    const { one, there, atUs, state, truth } = played({ ...run, behindUs })
    let nowUs = atUs + behindUs
    await anew(nowUs)
    const seed = seedFrom({ ...one, isOwn: true }, room(there, state, atUs).bucket, atUs)
    expect(await begin({ seeds: [seed], delayUs, closeUs: Infinity })).toEqual({ isDecided: true, atUs: nowUs })
    let [passed, toldUs] = [0, 0]
    for (const [i, { us: chosenUs, want }] of run.asks.entries()) {
      const us = chosenUs ?? toldUs
      await setClock(client, (nowUs += us))
      passed += us
      const told = await reserve(seed.bucket, want)
      toldUs = told.waitUs
      const free = truth.free(nowUs)
      expect(told.granted).toBeLessThanOrEqual(Math.min(want, free))
      if (passed < delayUs) expect(told.granted).toBe(0)
      else if (i === 0) {
        const partUs = Math.max(...one.rules.map((rule) => rule.partUs))
        const earlier = room(there, state, Math.max(atUs, atUs + passed - delayUs - 2 * partUs))
        expect(told.granted).toBeGreaterThanOrEqual(Math.min(want, earlier.units))
        if (told.granted === Math.min(want, free)) exact++
      }
      if (run.holdUs > passed) expect(told.granted).toBe(0)
      truth.charge(nowUs, told.granted)
      granted += told.granted
      asked++
    }
  })
  await fc.assert(property, { seed: repeat, numRuns: runs, endOnFailure: true })
  console.info(`seeds: ${granted} granted in ${asked} calls, ${exact} like the original, SLUICE_TEST_SEED=${repeat}`)
  expect(granted).toBeGreaterThan(2 * runs)
})

describe('a seed', () => {
  const minute = bucket('minute', { window: '5/min' })

  it('stands for all earlier grants: none of them can be refunded', async () => {
    const epoch = randomUUID()
    await begin({ epoch })
    expect(await reserve(minute, 3, { id: 'g' })).toMatchObject({ granted: 3 })
    const parts = [Array.from({ length: 61 }, (_, i) => (i === 30 ? 1 : 0))]
    await begin({ instead: epoch, seeds: [seedOf(minute, { parts })] })
    expect(await settle(minute, { grant: 'g', more: -3 })).toBe(0)
    expect(await reserve(minute, 9)).toMatchObject({ granted: 4 })
  })

  it('grants nothing until the delay is over, or ahead for then', async () => {
    await begin({ seeds: [seedOf(minute)], delayUs: 150_000 })
    const held = { granted: 0, lacking: 0, cause: 'used' }
    expect(await reserve(minute, 1, { aheadUs: 0 })).toMatchObject({ ...held, cause: 'held', waitUs: 150_000 })
    expect(await reserve(minute, 1, { aheadUs: 100_000 })).toMatchObject({ ...held, cause: 'held', waitUs: 50_000 })
    await setClock(client, startUs + 50_000)
    expect(await reserve(minute, 1, { aheadUs: 100_000 })).toMatchObject({ granted: 1, startUs: 100_000 })
    await setClock(client, startUs + 150_000)
    expect(await reserve(minute, 9)).toMatchObject({ granted: 4 })
  })

  it('is closed by its epoch all the same, unless no other process takes from it', async () => {
    const [own, other] = [{ ...minute, isOwn: true }, bucket('other', { window: '5/min' })]
    const unused = { ...bucket('unused', { window: '5/min' }), isOwn: true }
    const look = minute.rules[0]?.spanUs ?? 0
    await begin({ closeUs: Infinity, seeds: [seedOf(own), seedOf(other)] })
    expect(await reserve(own, 9)).toMatchObject({ granted: 5 })
    expect(await reserve(unused, 9)).toMatchObject({ granted: 5 })
    expect(await reserve(other, 9, { aheadUs: 0 })).toMatchObject({ granted: 0, waitUs: look, cause: 'held' })
    // From the time when others take of it too, it stays open: none did before.
    await setClock(client, startUs + 1)
    expect(await reserve(minute, 1, { aheadUs: 0 })).toMatchObject({ granted: 0, cause: 'used' })
    const joined = bucket('unused', { window: '5/min' })
    expect(await reserve(joined, 1, { aheadUs: 0 })).toMatchObject({ granted: 0, cause: 'used' })
  })

  it('refunds units that turn out unused by the id of its epoch, and no more than it had', async () => {
    const epoch = randomUUID()
    const [level, spread] = [bucket('level', { rate: '60/min', burst: 5 }), bucket('spread', { window: '5/min' })]
    const [weight = 0, drain = 0] = [level.rules[0]?.weight, level.rules[0]?.drain]
    await begin({ epoch, seeds: [seedOf(level, { debt: [5 * weight] }), seedOf(spread, { parts: [[3, 0, 2]] })] })
    expect(await reserve(level)).toMatchObject({ granted: 0 })
    expect(await settle(level, { grant: epoch, more: -2 })).toBe(-2)
    expect(await reserve(level, 9)).toMatchObject({ granted: 2 })
    // Units that drained since are no credit: without all of that, two of the five would be owed, not minus three.
    await setClock(client, startUs + (2 * weight) / drain)
    expect(await reserve(level, 9)).toMatchObject({ granted: 2 })
    await settle(level, { grant: epoch, more: -99 })
    expect(await reserve(level, 9)).toMatchObject({ granted: 3 })
    await setClock(client, startUs)
    expect(await reserve(spread)).toMatchObject({ granted: 0 })
    // Only the latest grants: every refund here is of a grant of a moment before.
    expect(await settle(spread, { grant: epoch, more: -4 })).toBe(-4)
    expect(await reserve(spread, 9)).toMatchObject({ granted: 3 })
  })

  it('does not return to the previous period of a quota when the other clock is ahead', async () => {
    const quota = bucket('quota', { quota: '30/min' })
    const endUs = startUs - (startUs % 60_000_000) + 60_000_000
    await setClock(client, endUs - 5_000_000)
    const spent = [[endUs - 60_000_000, endUs, endUs + 60_000_000, 0, 4, 0, quota.rules[0]?.quota?.marginUs ?? 0]]
    await begin({ seeds: [seedOf(quota, { spent })] })
    expect(await reserve(quota)).toMatchObject({ granted: 0, waitUs: 5_000_000 })
    await setClock(client, endUs)
    expect(await reserve(quota, 99)).toMatchObject({ granted: 26 })
  })

  it('has the places that are taken, which can be freed without a grant', async () => {
    const place = bucket('place', { concurrency: 3 })
    await begin({ seeds: [seedOf(place, { debt: [2] })] })
    expect(await reserve(place, 9)).toMatchObject({ granted: 1 })
    expect(await settle(place, { ended: 2 })).toBe(2)
    expect(await reserve(place, 9)).toMatchObject({ granted: 2 })
  })

  it('has the definition of the process that begins, even an older one, because the store may have been restored', async () => {
    const epoch = randomUUID()
    await begin({ epoch, closeUs: Infinity })
    const [seeded, bare] = [1, 2].map((i) => ({ ...bucket(`other${i}`, { window: '9/h' }, 2), isOwn: true }))
    for (const one of [seeded, bare]) await reserve(one as RedisBucket)
    const older = (one = seeded): RedisBucket => ({ ...(one as RedisBucket), version: 1 })
    await setClock(client, startUs + 1)
    await begin({ epoch: randomUUID(), instead: epoch, closeUs: Infinity, seeds: [seedOf(older())] })
    expect(await reserve(older(), 9)).toMatchObject({ granted: 9 })
    expect(await reserve(older(bare), 9)).toMatchObject({ granted: 9 })
  })

  it('can be written together with ten thousand others', async () => {
    const rate: LimitOptions = { rate: '100/min', burst: 10 }
    const seeds = Array.from({ length: 10_000 }, (_, i) => {
      const one = { ...bucket(`tenant:${i}`, rate), isOwn: true }
      return seedOf(one, { debt: [(one.rules[0]?.weight ?? 0) * (i % 10)] })
    })
    const beganMs = performance.now()
    expect(await begin({ seeds, delayUs: 0 })).toMatchObject({ isDecided: true })
    console.info(`10,000 seeds: ${Math.round(performance.now() - beganMs)} ms`)
    for (const i of [0, 7, 9_999])
      expect(await reserve(seeds[i]?.bucket as RedisBucket, 99)).toMatchObject({ granted: 10 - (i % 10) })
  })
})

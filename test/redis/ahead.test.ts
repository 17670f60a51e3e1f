import { randomInt, randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { LimitOptions } from '../../src/limits/limit.ts'
import type { Rule } from '../../src/limits/rule.ts'
import type { RedisBucket } from '../../src/redis/definition.ts'
import type { Granted } from '../../src/redis/call.ts'
import { RedisLimiter, scriptOf } from '../../src/redis/limiter.ts'
import { isLong } from '../long.ts'
import { freshRedis } from '../servers/redis.ts'
import { bucket, decided } from './calls.ts'
import { onStage, setClock } from './stage.ts'

/** Repeats a run from the values that it has printed. */
const seed = Number(process.env['SLUICE_TEST_SEED'] ?? randomInt(2 ** 31))
const runs = isLong ? 120 : 40
const startUs = 1_700_000_000_000_000

const { client } = await freshRedis()
const limiter = new RedisLimiter(client, { timeoutMs: 60_000 }, (name) => onStage(scriptOf(name)))

let nowUs = 0
const pass = (us: number) => setClock(client, (nowUs += us))
const anew = async (atUs = startUs) => {
  await client.send('FLUSHALL', [])
  nowUs = 0
  await pass(atUs)
  expect(await limiter.begin({ owner: 'sluice', epoch: randomUUID(), closeUs: 0 })).toMatchObject({ isDecided: true })
}
const reserve = async (buckets: RedisBucket[], want = 1, aheadUs = 0, afterUs = 0) => {
  const items = [{ want, takes: buckets.map((_, i) => ({ bucket: i, units: 1 })), afterUs }]
  const call = { id: randomUUID(), buckets, items }
  return decided(await limiter.reserve({ ...call, ...(aheadUs === foreign ? {} : { aheadUs }) }))[0] as Granted
}
/** In place of `aheadUs`: the call is another program's, without that option. */
const foreign = -1
const back = async (one: RedisBucket, grant: string, units: number) => {
  const acts = [{ bucket: 0, grant, more: -units }]
  return decided(await limiter.settle({ id: randomUUID(), buckets: [one], acts }))[0]
}

describe('a grant that Redis gives ahead of its start', () => {
  // Room for one; 10 ms each.
  const one = bucket('one', { rate: '100/s', burst: 1 })

  it('covers as many units as fit by then, and the rest gets a wait after which it is granted', async () => {
    await anew()
    expect(await reserve([one])).toMatchObject({ granted: 1, startUs: 0 })
    expect(await reserve([one], 1, 9_999)).toMatchObject({ granted: 0, waitUs: 1, lacking: 0, cause: 'used' })
    expect(await reserve([one], 1, 10_000)).toMatchObject({ granted: 1, waitUs: 0, startUs: 10_000 })
    expect(await reserve([one], 1, 15_000)).toMatchObject({ granted: 0, waitUs: 5_000, lacking: 0 })
    await pass(5_000)
    expect(await reserve([one], 1, 15_000)).toMatchObject({ granted: 1, startUs: 15_000 })
    // No further than 200 ms, whatever is requested.
    const wide = bucket('wide', { window: '1/s' })
    await reserve([wide])
    expect((await reserve([wide], 1, 5_000_000)).granted).toBe(0)
  })

  it('is refused to calls without the option `ahead` until then, even where there is room', async () => {
    await anew()
    const [open, busy] = [bucket('open', { rate: '100/s', burst: 9 }), bucket('busy', { concurrency: 9 })]
    await reserve([one])
    expect(await reserve([one, open, busy], 1, 50_000)).toMatchObject({ granted: 1, startUs: 10_000 })
    expect(await reserve([open], 1, 9_000)).toMatchObject({ granted: 0, waitUs: 1_000 })
    expect(await reserve([open], 2, 20_000)).toMatchObject({ granted: 2, startUs: 10_000 })
    for (const held of [open, busy])
      expect(await reserve([held], 1, foreign)).toMatchObject({ granted: 0, waitUs: 10_000, lacking: 0 })
    await pass(10_000)
    expect(await reserve([open], 1, foreign)).toMatchObject({ granted: 1, startUs: 0 })
    expect(await reserve([busy], 1, foreign)).toMatchObject({ granted: 1, startUs: 0 })
  })

  it('is refused for ten seconds after a call without that option, so that other programs get their turn', async () => {
    await anew()
    expect(await reserve([one])).toMatchObject({ granted: 1 })
    expect(await reserve([one], 1, 10_000)).toMatchObject({ granted: 1, startUs: 10_000 })
    expect(await reserve([one], 1, foreign)).toMatchObject({ granted: 0, waitUs: 20_000 })
    await pass(15_000)
    // Its units are used, which shows nothing about other programs. What is wanted later is not granted now, because of them.
    expect(await reserve([one], 1, 50_000)).toMatchObject({ granted: 0, waitUs: 5_000, cause: 'used' })
    expect(await reserve([one], 1, 50_000, 1_000)).toMatchObject({ granted: 0, lacking: 0, cause: 'others' })
    await pass(5_000)
    expect(await reserve([one], 1, foreign)).toMatchObject({ granted: 1 })
    await pass(8_000_000)
    expect(await reserve([one], 1, foreign)).toMatchObject({ granted: 1 })
    await pass(9_000_000)
    expect(await reserve([one], 1, 50_000, 1_000)).toMatchObject({ granted: 0, cause: 'others' })
    await pass(1_000_000)
    expect(await reserve([one], 1, 50_000, 1_000)).toMatchObject({ granted: 1, startUs: 1_000 })
  })

  it('is denied as behind when the bucket has granted for later times already', async () => {
    await anew()
    expect(await reserve([one], 1, 50_000, 200_000)).toMatchObject({ granted: 1, startUs: 200_000 })
    expect(await reserve([one], 1, 50_000, 100_000)).toMatchObject({ granted: 0, waitUs: 60_000, cause: 'behind' })
    expect(await reserve([one], 1, 200_000)).toMatchObject({ granted: 0, waitUs: 10_000, cause: 'used' })
    expect(await reserve([one], 1, 200_000, 100_000)).toMatchObject({ granted: 1, startUs: 210_000 })
  })

  it('may be wanted for later, and then counts from that time on', async () => {
    await anew()
    const wide = bucket('wide', { window: '2/s' })
    expect(await reserve([one], 1, 0, 7_000)).toMatchObject({ granted: 1, startUs: 7_000 })
    expect(await reserve([one], 1, 0, 16_000)).toMatchObject({ granted: 0, waitUs: 1_000, cause: 'used' })
    expect(await reserve([one], 1, 1_000, 16_000)).toMatchObject({ granted: 1, startUs: 17_000 })
    expect(await reserve([wide], 2, 100_000, 200_000)).toMatchObject({ granted: 2, startUs: 200_000 })
    // No later than 250 ms, whatever is requested.
    expect(await reserve([one], 1, 0, 5_000_000)).toMatchObject({ granted: 1, startUs: 250_000 })
    await pass(1_000_000)
    expect((await reserve([wide], 2)).granted).toBe(0)
    await pass(500_000)
    expect((await reserve([wide], 2)).granted).toBe(2)
  })

  it('covers as many units of an item as fit at one moment', async () => {
    await anew()
    const five = bucket('five', { rate: '100/s', burst: 5 })
    await reserve([five], 4)
    // Three fit after 20 ms: those may all be used together then.
    expect(await reserve([five], 9, 20_000)).toMatchObject({ granted: 3, startUs: 20_000, lacking: 0, waitUs: 10_000 })
  })

  it('is denied when the clock steps back, and the reply names a bucket that is on hold', async () => {
    await anew()
    await reserve([one], 1, 0)
    await reserve([one], 1, 10_000)
    await pass(-1_000_000)
    expect(await reserve([one])).toMatchObject({ granted: 0, waitUs: 1_020_000 })
    expect(await reserve([one], 1, 100_000)).toMatchObject({ granted: 0, waitUs: 920_000, cause: 'behind' })
    await pass(2_000_000)
    await limiter.settle({ id: randomUUID(), buckets: [one], acts: [{ bucket: 0, holdUs: 500_000 }] })
    expect(await reserve([one], 1, 100_000)).toMatchObject({ granted: 0, waitUs: 400_000, cause: 'held' })
    await pass(400_000)
    expect(await reserve([one], 1, 100_000)).toMatchObject({ granted: 1, startUs: 100_000 })
  })

  it('is refunded part by part, beginning with the part that starts first', async () => {
    await anew()
    const [wide, slow] = [bucket('wide', { window: '10/s' }), bucket('slow', { rate: '20/s', burst: 1 })]
    await reserve([slow])
    const id = randomUUID()
    const items = [
      { want: 2, takes: [{ bucket: 0, units: 1 }] },
      { want: 1, takes: [0, 1].map((i) => ({ bucket: i, units: 1 })) },
      { want: 3, takes: [{ bucket: 0, units: 1 }] },
    ]
    const told = await limiter.reserve({ id, buckets: [wide, slow], items, aheadUs: 100_000 })
    expect(decided(told).map(({ granted, startUs: us }) => [granted, us])).toEqual([
      [2, 0],
      [1, 50_000],
      [3, 50_000],
    ])
    expect([await back(wide, id, 3), await back(wide, id, 2), await back(wide, id, 9)]).toEqual([-3, -2, -1])
    await pass(50_000)
    expect(await reserve([wide], 99)).toMatchObject({ granted: 10 })
  })
})

it('units of many parts that are given back one by one, or at once, leave the same room', async () => {
  const rate: LimitOptions = { rate: '1000/s', burst: 40 }
  const rooms: number[] = []
  for (const each of [true, false]) {
    await anew()
    const fast = bucket('fast', rate)
    const ids = [randomUUID(), randomUUID()]
    const items = Array.from({ length: 60 }, (_, i) => ({
      want: 1,
      takes: [{ bucket: 0, units: 1 }],
      afterUs: i * 900,
    }))
    for (const id of ids) {
      const told = decided(await limiter.reserve({ id, buckets: [fast], items, aheadUs: 200_000 }))
      expect(told.every(({ granted }) => granted === 1)).toBe(true)
    }
    const backs = Array.from({ length: each ? 45 : 1 }, () => ({
      bucket: 0,
      grant: ids[0] ?? '',
      more: each ? -1 : -45,
    }))
    const gone = decided(await limiter.settle({ id: randomUUID(), buckets: [fast], acts: backs }))
    expect(gone.reduce((sum, units) => sum + units, 0)).toBe(-45)
    await pass(150_000)
    rooms.push((await reserve([fast], 99)).granted)
  }
  expect(rooms[0]).toBe(rooms[1])
  expect(rooms[0]).toBeGreaterThan(0)
})

/** The units in use, or whose grant lasts, at a time. */
type Use = { atUs: number; units: number }

/** Where the usage of a bucket is more than its rule allows; undefined: nowhere. */
function excess(rule: Rule, uses: readonly Use[]): object | undefined {
  const inOrder = uses.filter(({ units }) => units > 0).sort((a, b) => a.atUs - b.atUs)
  for (const [i, from] of inOrder.entries()) {
    let sum = 0
    for (const to of inOrder.slice(i)) {
      const us = to.atUs - from.atUs
      if (rule.kind === 'window' && us >= rule.partUs * 60) break
      sum += to.units
      const most = rule.kind === 'window' ? rule.capacity : rule.capacity + (rule.drain * us) / rule.weight
      if (sum > most) return { rule, fromUs: from.atUs - startUs, us, sum, most }
    }
  }
  const margin = rule.quota?.marginUs ?? 0
  const minuteUs = 60_000_000
  for (const { atUs } of rule.kind === 'quota' ? inOrder : [])
    for (const begins of [-margin, margin].map((us) => Math.floor((atUs + us) / minuteUs) * minuteUs)) {
      const inside = inOrder.filter((one) => one.atUs >= begins - margin && one.atUs < begins + minuteUs + margin)
      const sum = inside.reduce((all, { units }) => all + units, 0)
      if (sum > rule.capacity) return { rule, begins, sum }
    }
  return undefined
}

const anyLimit = fc.constantFrom<LimitOptions>(
  { rate: '200/s', burst: 1 },
  { rate: '100/s' },
  { rate: '60/s', burst: 7 },
  { window: '20/s' },
  { rate: '150/s', burst: 4, window: '30/s' },
  { rate: '40/s', burst: 5, quota: '30/min' },
  { rate: '90/s', burst: 9, concurrency: 1000 },
)
const anyAct = fc.record({
  // The returned wait (null), or this time.
  us: fc.oneof(
    fc.constant(null),
    fc.constant(0),
    fc.integer({ max: 25_000, min: 0 }),
    fc.constantFrom(200_000, 999_000),
  ),
  ahead: fc.constantFrom(0, 7_000, 40_000, 200_000),
  isForeign: fc.boolean(),
  items: fc.array(
    fc.record({
      want: fc.integer({ min: 1, max: 9 }),
      takes: fc.constantFrom([0], [1], [0, 1], [1, 0]),
      units: fc.constantFrom(1, 1, 1, 2, 0),
      after: fc.constantFrom(0, 0, 0, 3_000, 50_000, 200_000),
    }),
    { minLength: 1, maxLength: 3 },
  ),
  // Refunds units of one of the last calls, of those that start last, or first.
  back: fc.option(
    fc.record({
      call: fc.integer({ min: 0, max: 3 }),
      units: fc.integer({ min: 1, max: 8 }),
      isLast: fc.boolean(),
    }),
    { freq: 3 },
  ),
})
type Act = typeof anyAct extends fc.Arbitrary<infer T> ? T : never

/** The grants and the usage of callers in a history of two buckets. */
class Ledger {
  readonly calls: { id: string; uses: Use[][] }[] = []
  readonly counts = { granted: 0, ahead: 0, back: 0, backAhead: 0 }
  readonly #buckets: RedisBucket[]
  readonly #hasOthers: boolean
  #toldUs = 0

  constructor(limits: readonly LimitOptions[], hasOthers: boolean) {
    this.#hasOthers = hasOthers
    this.#buckets = limits.map((options, i) => bucket(`b${i}`, options))
  }

  async play(act: Act): Promise<void> {
    await pass(act.us ?? Math.min(this.#toldUs, 1_000_000))
    if (act.back !== null) await this.#giveBack(act.back)
    const id = randomUUID()
    const uses: Use[][] = this.#buckets.map(() => [])
    const isForeign = act.isForeign && this.#hasOthers
    const items = act.items.map(({ want, takes, units, after }) => ({
      want,
      ...(isForeign ? {} : { afterUs: after }),
      takes: takes.map((one, i) => ({ bucket: one, units: i === 0 ? units : 1 })),
    }))
    const answer = await limiter.reserve({
      id,
      buckets: this.#buckets,
      items,
      ...(isForeign ? {} : { aheadUs: act.ahead }),
    })
    for (const [i, { granted, startUs: us, waitUs }] of decided(answer).entries()) {
      const { afterUs = 0 } = items[i] ?? {}
      if (granted > 0) expect(us).toBeGreaterThanOrEqual(afterUs)
      expect(us).toBeLessThanOrEqual(isForeign ? 0 : afterUs + act.ahead)
      this.#toldUs = waitUs
      const { takes = [] } = items[i] ?? {}
      for (const take of takes) uses[take.bucket]?.push({ atUs: nowUs + us, units: granted * take.units })
      this.counts.granted += granted
      if (us > 0) this.counts.ahead += granted
    }
    this.calls.push({ id, uses })
  }

  async #giveBack({ call: ago, units, isLast }: NonNullable<Act['back']>): Promise<void> {
    const call = this.calls.at(-1 - ago)
    for (const [i, uses] of (call?.uses ?? []).entries()) {
      const held = uses.reduce((sum, one) => sum + one.units, 0)
      const some = Math.min(units, held)
      if (some === 0 || call === undefined) continue
      expect(await back(this.#buckets[i] as RedisBucket, call.id, some)).toBe(-some)
      let left = some
      for (const one of isLast ? uses.toReversed() : uses) {
        const fewer = Math.min(left, one.units)
        if (fewer > 0 && one.atUs > nowUs) this.counts.backAhead += fewer
        one.units -= fewer
        left -= fewer
      }
      this.counts.back += some
    }
  }

  /** Where a limit was exceeded. */
  excess(): object[] {
    return this.#buckets.flatMap(({ rules }, i) => {
      const uses = this.calls.flatMap((call) => call.uses[i] ?? [])
      return rules.filter(({ drain }) => drain > 0).flatMap((rule) => excess(rule, uses) ?? [])
    })
  }
}

it('several callers, some ahead and some at once, together exceed no rule at any time', async () => {
  const total = { granted: 0, ahead: 0, back: 0, backAhead: 0 }
  const anyRun = fc.record({
    limits: fc.tuple(anyLimit, anyLimit),
    acts: fc.array(anyAct, { minLength: 60, maxLength: 60 }),
    // Before the end of a minute, for quotas.
    leftUs: fc.integer({ min: 0, max: 2_000_000 }),
    // For some time after each of their calls, nothing is granted ahead.
    hasOthers: fc.constantFrom(true, false, false),
  })
  const property = fc.asyncProperty(anyRun, async ({ limits, acts, leftUs, hasOthers }) => {
    await anew(startUs - (startUs % 60_000_000) - leftUs)
    const ledger = new Ledger(limits, hasOthers)
    for (const act of acts) await ledger.play(act)
    expect(ledger.excess()).toEqual([])
    for (const name of ['granted', 'ahead', 'back', 'backAhead'] as const) total[name] += ledger.counts[name]
  })
  await fc.assert(property, { seed, numRuns: runs, endOnFailure: true })
  console.info(`ahead: ${JSON.stringify(total)}, SLUICE_TEST_SEED=${seed}`)
  expect(total.ahead).toBeGreaterThan(4 * runs)
  expect(total.backAhead).toBeGreaterThan(runs / 3)
})

describe.each<LimitOptions>([
  { rate: '100/s', burst: 1 },
  { rate: '1000/s' },
  { window: '20/s' },
  { rate: '77/s', window: '60/s' },
])('continued demand on %o', (options) => {
  it('uses all units, although the caller that requests ahead is late each time', async () => {
    await anew()
    const one = bucket('one', options)
    const seconds = 10
    const endUs = startUs + seconds * 1e6
    let used = 0
    for (let step = 0; nowUs < endUs; step++) {
      const late = step % 20 === 19 ? 60_000 : (step * 3_700) % 9_000
      // Another caller tries too, each time.
      const [own, other] = [await reserve([one], 50, 100_000), await reserve([one])]
      for (const { granted, startUs: us } of [own, other]) if (nowUs + us < endUs) used += granted
      await pass(Math.max(own.waitUs + late, 1))
    }
    // A window forgets usage only when its part is over.
    const least = one.rules.map(({ kind, capacity, drain, weight, partUs }) => {
      const perSecond = kind === 'window' ? (capacity * 1e6) / (61 * partUs) : (1e6 * drain) / weight
      return Math.floor(perSecond * seconds) - capacity
    })
    expect(used).toBeGreaterThanOrEqual(Math.min(...least))
  })
})

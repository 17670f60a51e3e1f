import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { expect } from 'vitest'
import { hash64 } from '../../src/core/hash.ts'
import type { Db } from '../../src/db/db.ts'
import {
  type Bucket,
  charge,
  emptyBucket,
  type Entry,
  hold,
  neverUs,
  rebuild,
  release,
  type Room,
  room,
  settle,
} from '../../src/limits/decide.ts'
import { limit, type Limit, type Rule } from '../../src/limits/limit.ts'
import { defineLimit } from '../../src/dispatch/define.ts'
import { anyRule, bound, giveBack, type Grant, type Known, minute, second, worst } from './oracle.ts'

/** One thing that happens; `buckets` are numbers of buckets, `limit` of a limit. */
export type Act =
  | { kind: 'pass'; us: number }
  /** To the moment that a bucket's hint names, or a microsecond before. */
  | { kind: 'jump'; bucket: number; us: number }
  | { kind: 'take'; buckets: number[]; units: number; again: boolean }
  /** `size`: units of each job. */
  | { kind: 'charge'; buckets: number[]; shares: number[]; size: number }
  /** Of the grant so many grants ago, so much of what is left is given back; negative: so much more was used. */
  | { kind: 'refund'; bucket: number; ago: number; share: number }
  /** Of what runs, so much ends: it counts for concurrency alone. */
  | { kind: 'release'; buckets: number[]; units: number }
  | { kind: 'hold'; buckets: number[]; us: number }
  | { kind: 'redefine'; limit: number; rules: Rule[] }
  /** So long nothing happens; then what is over is forgotten, buckets too. They are found anew, as by a next job. */
  | { kind: 'retire'; us: number }

const bucketsOf = [0, 0, 1, 1, 2]
/** What each bucket's hint is asked for. */
const needs = [1, 3, 1, 100, 7]
/** Longer than any of the rules looks back. */
const keepUs = 2 * 86_400 * second
const anyRules = fc.array(anyRule, { minLength: 1, maxLength: 3 })
const anyBuckets = fc
  .uniqueArray(fc.nat(bucketsOf.length - 1), { minLength: 1 })
  .map((list) => list.toSorted((a, b) => a - b))
const anyPass = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 0, max: 2 * second }) },
  { weight: 1, arbitrary: fc.integer({ min: -minute, max: -1 }) },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 10 * minute }) },
)

const anyJump = fc.record({
  kind: fc.constant('jump'),
  bucket: fc.nat(bucketsOf.length - 1),
  us: fc.constantFrom(0, -1),
})

const anyAct: fc.Arbitrary<Act> = fc.oneof(
  { weight: 3, arbitrary: anyJump },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('pass'), us: anyPass }) },
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant('take'),
      buckets: anyBuckets,
      units: fc.constantFrom(1, 1, 1, 0, 3),
      again: fc.nat(4).map((n) => n === 0),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('charge'),
      buckets: anyBuckets,
      shares: fc.array(fc.constantFrom(0, 0.3, 1), { minLength: bucketsOf.length, maxLength: bucketsOf.length }),
      size: fc.constantFrom(1, 1, 4),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('refund'),
      bucket: fc.nat(bucketsOf.length - 1),
      ago: fc.integer({ min: 1, max: 6 }),
      share: fc.constantFrom(0.3, 1, 0.3, 1, -0.5, -4),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('hold'),
      buckets: anyBuckets,
      us: fc.integer({ min: 1, max: 3 * second }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('release'),
      buckets: anyBuckets,
      units: fc.integer({ min: 1, max: 20 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('redefine'), limit: fc.nat(2), rules: anyRules }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('retire'), us: fc.constantFrom(0, minute, keepUs, keepUs + minute) }),
  },
)

/** A random history: three limits, five buckets, and what happens to them. */
export const anyHistory = (length: number) =>
  fc.record({
    limits: fc.array(anyRules, { minLength: 3, maxLength: 3 }),
    acts: fc.array(anyAct, { minLength: length, maxLength: length }),
  })

/** Puts the store's clock into a table. */
export async function ownClock(db: Db): Promise<void> {
  await db.query('create table sluice.test_clock (us bigint)')
  await db.query('insert into sluice.test_clock values (0)')
  await db.query(
    `create or replace function sluice.now() returns timestamptz language sql volatile as
     'select to_timestamp(0) + us * interval ''1 microsecond'' from sluice.test_clock'`,
  )
}

/** A grant as the twin remembers it: under its name, with the version of the limit that it was decided by. */
interface Named extends Known {
  id: string
  version: number
}

interface Kept {
  id: string
  limit: number
  /** The rules under which `state` was last written, and all that were in force since. */
  defined: (readonly Rule[])[]
  state: Bucket | undefined
  history: Named[]
  /** How many of `history` were granted before the limit was last defined. */
  old: number
}

/** As text, in one order of fields: equal as JSON means equal to the store. */
function inFull(rules: readonly Rule[]): string {
  const fields = ['kind', 'rate', 'units', 'windowUs', 'drain', 'weight', 'room', 'slotUs', 'spanUs']
  return JSON.stringify(rules, fields)
}

/** What a bucket was granted and kept, in order. */
function keptOf(one: Kept): Entry[] {
  return one.history.map(({ atUs, units, refunded }) => ({ atUs, units: units - refunded }))
}

/** The same history in the store and in decide.ts, compared after every act. */
export class Twin {
  readonly #db: Db
  readonly #limits: (readonly Rule[])[] = []
  readonly #versions: number[] = []
  readonly #buckets: Kept[] = []
  readonly #name = `l${randomUUID()}`
  #nowUs = 1_790_000_000_000_000
  #last: { grant: string; buckets: number[]; units: number } | undefined
  /** Buckets that were retired so far. */
  retired = 0

  constructor(db: Db) {
    this.#db = db
  }

  async begin(limits: readonly (readonly Rule[])[]): Promise<void> {
    await this.#db.query('update sluice.test_clock set us = $1', [this.#nowUs])
    for (const [i, rules] of limits.entries()) await this.#define(i, rules)
    for (const [i, of] of bucketsOf.entries()) {
      const name = `${this.#name}.${of}`
      const id = hash64(`${name}:${i}`)
      this.#buckets.push({
        id,
        limit: of,
        defined: [this.#limits[of] ?? []],
        state: undefined,
        history: [],
        old: 0,
      })
    }
    await this.#find()
  }

  /** As the first job of a lane does. */
  async #find(): Promise<void> {
    await this.#db.query(
      'insert into sluice.bucket (id, name, key) select * from unnest($1::bigint[], $2::text[], $3::text[]) on conflict do nothing',
      [
        this.#buckets.map((one) => one.id),
        this.#buckets.map((one) => `${this.#name}.${one.limit}`),
        this.#buckets.map((_, i) => `${i}`),
      ],
    )
  }

  async #retire(us: number): Promise<void> {
    await this.#db.query('update sluice.test_clock set us = $1', [(this.#nowUs += us)])
    await this.#db.query('select sluice.forget_v1($1, 0)', [keepUs])
    const [row] = await this.#db.query<{ gone: string }>('select gone from sluice.retire_v1($1, null, $2)', [
      keepUs,
      '-9223372036854775808',
    ])
    this.retired += Number(row?.gone)
    await this.#find()
    // Asked for again it would be granted anew: nobody asks after days.
    if (us > 0) this.#last = undefined
  }

  async act(act: Act): Promise<void> {
    if (act.kind === 'pass') await this.#db.query('update sluice.test_clock set us = $1', [(this.#nowUs += act.us)])
    else if (act.kind === 'jump') await this.#jump(act.bucket, act.us)
    else if (act.kind === 'take') await this.#take(act.buckets, act.units, act.again)
    else if (act.kind === 'charge') await this.#charge(act.buckets, act.shares, act.size)
    else if (act.kind === 'refund') await this.#refund(act.bucket, act.ago, act.share)
    else if (act.kind === 'release') await this.#release(act.buckets, act.units)
    else if (act.kind === 'hold') await this.#hold(act.buckets, act.us)
    else if (act.kind === 'retire') await this.#retire(act.us)
    else await this.#define(act.limit, act.rules)
    await this.#compare()
  }

  /** Every window of every bucket against the bound of every rule, from the list of all grants. */
  within(): void {
    for (const one of this.#buckets) this.#within(one)
  }

  #within(one: Kept): void {
    // What was used beyond what was granted is in no bound, but leaves the less room for grants.
    const kept = one.history.map(({ id, atUs, units, refunded }): Grant => [atUs, id === '' ? 0 : units - refunded])
    for (const rule of this.#limits[one.limit] ?? []) {
      if (rule.kind === 'concurrency') continue
      // Also those that began under the definition before.
      expect(worst(kept, rule.windowUs, 'half-open', one.old)).toBeLessThanOrEqual(bound(rule, rule.windowUs))
      const spanUs = 3 * rule.windowUs
      expect(worst(kept.slice(one.old), spanUs)).toBeLessThanOrEqual(bound(rule, spanUs))
    }
  }

  #room(one: Kept, nowUs = this.#nowUs, isFurther = false, need = 1): Room {
    const rules = this.#limits[one.limit] ?? []
    const state = one.state ?? emptyBucket(rules, nowUs)
    const bucket = one.defined.length === 1 ? state : rebuild(one.defined, keptOf(one), state)
    return room(rules, bucket, nowUs, isFurther, need)
  }

  #write(one: Kept, state: Bucket): void {
    one.defined = [this.#limits[one.limit] ?? []]
    one.state = state
  }

  #grant(one: Kept, id: string, units: number, isFurther = false, places = units): void {
    const { bucket } = this.#room(one)
    const version = this.#versions[one.limit] ?? 0
    one.history.push({ id, atUs: bucket.atUs, units, refunded: 0, version })
    this.#write(one, charge(this.#limits[one.limit] ?? [], bucket, units, isFurther, places))
  }

  async #jump(number: number, us: number): Promise<void> {
    for (const one of this.#pick([number])) {
      const { nextUs } = this.#room(one)
      if (nextUs < neverUs) this.#nowUs = nextUs + us
    }
    await this.#db.query('update sluice.test_clock set us = $1', [this.#nowUs])
  }

  async #take(numbers: number[], units: number, again: boolean): Promise<void> {
    const repeat = again && this.#last !== undefined ? this.#last : undefined
    const kept = this.#pick(repeat?.buckets ?? numbers)
    for (const one of kept)
      if (one.state !== undefined && one.defined.length > 1) this.#write(one, this.#room(one, 0).bucket)
    const grant = repeat?.grant ?? randomUUID()
    const [answer] = await this.#db.call<{ granted: boolean; wait: string }>(
      'test_take',
      'select granted, wait_us::text as wait from sluice.take_v1($1, $2, null, $3)',
      [grant, kept.map((one) => one.id), kept.map(() => units)],
    )
    if (repeat !== undefined) return expect(answer).toEqual({ granted: true, wait: '0' })
    const denied = kept
      .map((one) => this.#room(one, this.#nowUs, true, units))
      .filter((one) => one.avail < Math.max(units, 1))
    if (denied.length > 0) {
      const wait = Math.max(1, Math.max(...denied.map((one) => one.nextUs)) - this.#nowUs)
      return expect(answer).toEqual({ granted: false, wait: String(wait) })
    }
    expect(answer).toEqual({ granted: true, wait: '0' })
    for (const one of kept) this.#grant(one, grant, units, true)
    this.#last = { grant, buckets: numbers, units }
  }

  /** As a claim does it: what is free in each bucket is looked up, some of it is charged, in one statement for all. */
  async #charge(numbers: number[], shares: number[], size: number): Promise<void> {
    const kept = this.#pick(numbers)
    const units = kept.map((one, i) => Math.ceil(Math.min(this.#room(one).avail, 1_000) * (shares[i] ?? 0)))
    const places = units.map((one) => Math.ceil(one / size))
    const claim = randomUUID()
    await this.#db.query('select sluice.charge_v1($1, $2, $3, $4, $5)', [
      claim,
      this.#nowUs,
      kept.map((one) => one.id),
      units,
      places,
    ])
    for (const [i, one] of kept.entries())
      if ((units[i] ?? 0) > 0) this.#grant(one, claim, units[i] ?? 0, false, places[i])
  }

  async #refund(number: number, ago: number, share: number): Promise<void> {
    for (const one of this.#pick([number])) {
      const index = one.history.length - ago
      const known = one.history[index]
      const units = Math.ceil(((known?.units ?? 0) - (known?.refunded ?? 0)) * share)
      if (known === undefined || known.id === '' || units === 0) continue
      if (units < 0) {
        await this.#overrun(one, known, -units)
        continue
      }
      await this.#db.query('select sluice.refund_v1($1, $2, $3)', [one.id, known.id, units])
      if (one.history.slice(index).some((grant) => grant.version !== this.#versions[one.limit])) continue
      const { bucket } = this.#room(one, 0)
      this.#write(one, giveBack(this.#limits[one.limit] ?? [], one.history, index, units, bucket))
    }
  }

  async #overrun(one: Kept, known: Named, more: number): Promise<void> {
    await this.#db.query('select sluice.overrun_v1($1, $2, $3, $4)', [one.id, known.id, more, this.#nowUs])
    const { bucket } = this.#room(one)
    const version = this.#versions[one.limit] ?? 0
    one.history.push({ id: '', atUs: bucket.atUs, units: more, refunded: 0, version })
    this.#write(one, settle(this.#limits[one.limit] ?? [], known.atUs, more, [], bucket))
  }

  async #release(numbers: number[], units: number): Promise<void> {
    const kept = this.#pick(numbers)
    await this.#db.query('select sluice.release_v1($1, $2)', [kept.map((one) => one.id), kept.map(() => units)])
    for (const one of kept) {
      const rules = this.#limits[one.limit] ?? []
      if (one.state !== undefined && rules.some((rule) => rule.kind === 'concurrency'))
        this.#write(one, release(rules, this.#room(one, 0).bucket, units))
    }
  }

  async #hold(numbers: number[], us: number): Promise<void> {
    const kept = this.#pick(numbers)
    await this.#db.query('select sluice.hold_v1($1, $2, null)', [kept.map((one) => one.id), us])
    for (const one of kept) {
      const { bucket } = this.#room(one)
      const held = hold(bucket, us)
      if (held.holdUs > bucket.holdUs) this.#write(one, held)
    }
  }

  async #define(number: number, rules: readonly Rule[]): Promise<void> {
    for (const one of this.#buckets) if (one.limit === number) this.#within(one)
    await defineLimit(this.#db, { ...limit(`${this.#name}.${number}`, { rate: '1/s' }), rules } as unknown as Limit)
    if (inFull(rules) !== inFull(this.#limits[number] ?? [])) {
      this.#versions[number] = (this.#versions[number] ?? 0) + 1
      for (const one of this.#buckets) if (one.limit === number) one.defined.push(rules)
    }
    this.#limits[number] = rules
    for (const one of this.#buckets) if (one.limit === number) one.old = one.history.length
  }

  #pick(numbers: number[]): Kept[] {
    return this.#buckets.filter((_, i) => numbers.includes(i))
  }

  async #compare(): Promise<void> {
    const ids = this.#buckets.map((one) => one.id)
    const rows = await this.#db.call<{ row: unknown }>(
      'test_room',
      `select json_build_object('atUs', now_at, 'debt', debt, 'slots', coalesce(slots, '{}'), 'holdUs', case when hold > now_at then hold else 0 end, 'avail', avail, 'units', units, 'places', places, 'nextUs', next) as row
       from sluice.room_v1($1, sluice.now_us(), false, $2) order by ord`,
      [ids, needs],
    )
    const expected = this.#buckets.map((one, i) => {
      const { bucket, ...free } = this.#room(one, this.#nowUs, false, needs[i])
      // A hold that is over means nothing any more, and a bucket that was retired knows of none.
      return { ...bucket, holdUs: bucket.holdUs > bucket.atUs ? bucket.holdUs : 0, ...free }
    })
    expect(rows.map((one) => one.row)).toEqual(expected)
  }
}

import fc from 'fast-check'
import { type Bucket, charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { type Entry, refund } from './specification.ts'
import { type Calendar, type CalendarUnit, periodOf } from '../../src/core/calendar.ts'
import { limit } from '../../src/limits/limit.ts'
import { pacedRules, type Rule, withPaces } from '../../src/limits/rule.ts'

/** A grant: its time, and its number of units. */
export type Grant = readonly [atUs: number, units: number]

export const second = 1_000_000
export const minute = 60 * second

/** A level rule in plain numbers: `units` per `windowUs` drain from a bucket of `capacity`; no margin. */
export function level(units: number, windowUs: number, capacity: number): Rule {
  const shared = gcd(units, windowUs)
  const rate = `${units}/${windowUs / 1_000}ms`
  const drain = units / shared
  return {
    kind: 'rate',
    rate,
    units,
    windowUs,
    drain,
    weight: windowUs / shared,
    capacity,
    partUs: 0,
    spanUs: Math.max(windowUs, Math.ceil((capacity * windowUs) / units)),
  }
}

/** A window rule in plain numbers: `units` in 60 parts of `partUs`; no margin. */
export function sliding(units: number, partUs: number): Rule {
  const rate = `${units}/${(60 * partUs) / 1_000}ms`
  const of = { units, windowUs: 60 * partUs, capacity: units, partUs, spanUs: 61 * partUs }
  return { kind: 'window', rate, drain: 1, weight: 1, ...of }
}

/** A concurrency rule. */
export function places(units: number): Rule {
  const of = { units, windowUs: 0, capacity: units, partUs: 0, spanUs: 0 }
  return { kind: 'concurrency', rate: `${units}`, drain: 0, weight: 1, ...of }
}

/** A quota in plain numbers; `marginUs` may be anything. */
export function quota(units: number, calendar: Calendar, marginUs: number): Rule {
  const [made] = limit('a', { quota: `${units}/${calendar.unit}`, zone: calendar.zone }).rules
  if (made?.quota === undefined) throw new Error('no quota')
  const spanUs = made.spanUs - made.quota.marginUs + marginUs
  return { ...made, spanUs, quota: { ...calendar, marginUs } }
}

/**
 * Most units that a vendor can count in one period, when its clock, and the transit, are off by less than the margin: sums over
 * all grants within a margin of each period, by a check of every one. `from`: only those with this grant or a later one.
 */
export function worstPeriod(grants: readonly Grant[], { quota: of }: Rule, from = 0): number {
  if (of === undefined) return 0
  const { marginUs } = of
  let most = 0
  for (const [i, [atUs]] of grants.entries()) {
    if (i < from) continue
    for (const near of [atUs - marginUs, atUs, atUs + marginUs]) {
      const { startUs, endUs } = periodOf(of, near)
      const isIn = (us: number) => us >= startUs - marginUs && us < endUs + marginUs
      if (!isIn(atUs)) continue
      let sum = 0
      for (let j = i; j >= 0 && (grants[j]?.[0] ?? 0) >= startUs - marginUs; j--)
        if (isIn(grants[j]?.[0] ?? 0)) sum += grants[j]?.[1] ?? 0
      most = Math.max(most, sum)
    }
  }
  return most
}

/** Most units that a rule may grant in a half-open span; concurrency does not limit that. `pace`: that of a rate. */
export function bound(rule: Rule, spanUs: number, pace?: Rule): number {
  if (pace !== undefined) return Math.max(bound(rule, spanUs), bound({ ...pace, capacity: 1 }, spanUs + pace.partUs))
  if (rule.kind === 'concurrency') return Infinity
  if (rule.kind === 'quota') return rule.capacity * (Math.ceil(spanUs / rule.windowUs) + 1)
  if (rule.kind === 'window') return rule.capacity * Math.ceil(spanUs / rule.windowUs)
  const refill = (BigInt(spanUs) * BigInt(rule.drain) + BigInt(rule.weight) - 1n) / BigInt(rule.weight)
  return rule.capacity + Number(refill) - 1
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b)
}

/**
 * Most units in any window of this length, by a check of every one: each window is worst when it begins at a grant.
 * `from`: only windows that end at this grant or later.
 */
export function worst(
  grants: readonly Grant[],
  windowUs: number,
  ends: 'half-open' | 'closed' = 'half-open',
  from = 0,
): number {
  let most = 0
  let sum = 0
  let first = 0
  for (const [i, [atUs, units]] of grants.entries()) {
    sum += units
    const out = (begin: number) => (ends === 'closed' ? atUs - begin > windowUs : atUs - begin >= windowUs)
    while (out(grants[first]?.[0] ?? atUs)) sum -= grants[first++]?.[1] ?? 0
    if (i >= from) most = Math.max(most, sum)
  }
  return most
}

/** All grants of a demand that never ends: whenever a unit frees, all free units are taken, `workers` in turn. */
export function greedy(rules: readonly Rule[], fromUs: number, count: number, workers = 1): Grant[] {
  let bucket = emptyBucket(rules, fromUs)
  const grants: Grant[] = []
  for (let left = count, nowUs = fromUs; left > 0;) {
    const free = room(rules, bucket, nowUs)
    const units = Math.min(left, workers === 1 ? free.avail : Math.min(1, free.avail))
    if (units === 0) nowUs = free.nextUs
    else {
      bucket = charge(rules, free.bucket, units)
      grants.push([free.bucket.atUs, units])
      left -= units
    }
  }
  return grants
}

/** Rates as they occur, and odd ones. */
export const anyLevel: fc.Arbitrary<Rule> = fc.oneof(
  fc.constantFrom(
    level(999_983, 86_400 * second, 100),
    level(7, 13 * second, 3),
    level(100, minute, 100),
    level(100, minute, 1),
    level(1, 86_400 * second, 1),
    level(5, 1_000, 2),
    ...withPaces(limit('a', { rate: ['7/13s', '999983/day', '50/s'] }).rules).map(({ rule }) => rule),
  ),
  fc
    .record({
      units: fc.integer({ min: 1, max: 2_000 }),
      windowUs: fc.integer({ min: 1_000, max: 10 * minute }),
      capacity: fc.integer({ min: 1, max: 60 }),
    })
    .map(({ units, windowUs, capacity }) => level(units, windowUs, capacity)),
)

/** Rates, most with a pace, as they occur, and odd ones; in any case what a limit has for one rate. */
export const anyPaced: fc.Arbitrary<Rule[]> = fc
  .record({
    units: fc.integer({ min: 10, max: 2_000 }),
    windowUs: fc.oneof(fc.constantFrom(second, 10 * second, minute), fc.integer({ min: 1_000, max: 10 * minute })),
    marginUs: fc.constantFrom(0, second / 5),
  })
  .map(({ units, windowUs, marginUs }) => {
    const rate = `${units}/${windowUs / 1_000}ms` as '1/s'
    return pacedRules('a', { rate, units, windowUs }, marginUs)
  })

/** Windows as they occur, and odd ones. */
export const anyWindow: fc.Arbitrary<Rule> = fc.oneof(
  fc.constantFrom(...limit('a', { window: ['7/13s', '100/min', '50/s'] }).rules, sliding(1, 1)),
  fc.tuple(fc.integer({ min: 1, max: 60 }), fc.integer({ min: 1, max: 10 * second })).map((one) => sliding(...one)),
)

/** Zones whose clocks change in the night, at midnight, by half an hour; whose offset is no hour; that have none. */
export const zones = [
  'UTC',
  'America/Los_Angeles',
  'America/Sao_Paulo',
  'Australia/Lord_Howe',
  'Asia/Kathmandu',
  'Africa/Cairo',
  'America/Havana',
  'Asia/Beirut',
]

const shortestUs: Record<CalendarUnit, number> = {
  minute,
  hour: 30 * minute,
  day: 22 * 60 * minute,
  week: 160 * 60 * minute,
  month: 660 * 60 * minute,
}

/** Quotas by the calendars of all zones, with margins of microseconds to just below half of their shortest period. */
export const anyQuota: fc.Arbitrary<Rule> = fc
  .record({
    units: fc.integer({ min: 1, max: 60 }),
    unit: fc.constantFrom<CalendarUnit>('minute', 'minute', 'hour', 'hour', 'day', 'week', 'month'),
    zone: fc.constantFrom(...zones),
    anchorUs: fc.option(
      fc.integer({ min: 1_700_000_000_000, max: 1_800_000_000_000 }).map((ms) => ms * 1_000),
      { freq: 3 },
    ),
    margin: fc.double({ min: 0, max: 0.49, noNaN: true }),
  })
  .map(({ units, unit, zone, anchorUs, margin }) => {
    const marginUs = 1 + Math.floor(margin ** 3 * shortestUs[unit])
    return quota(units, { unit, zone, anchorUs }, marginUs)
  })

/** Rules that depend on the times of grants. */
export const anyFlow = fc.oneof(
  { weight: 3, arbitrary: anyLevel },
  { weight: 2, arbitrary: anyWindow },
  { weight: 2, arbitrary: anyQuota },
)

/** Rules of all kinds. */
export const anyRule = fc.oneof(
  { weight: 5, arbitrary: anyFlow },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 40 }).map(places) },
)

/** Rules of one limit; a pace stands behind its rate. */
export const anyRules = fc
  .array(fc.oneof({ weight: 3, arbitrary: anyRule.map((rule) => [rule]) }, { weight: 1, arbitrary: anyPaced }), {
    minLength: 1,
    maxLength: 3,
  })
  .map((list) => list.flat())

/** Rules whose numbers reach to the edge of exact arithmetic. */
export const vastRule: fc.Arbitrary<Rule> = fc
  .tuple(fc.integer({ min: 1, max: 999_999_999 }), fc.integer({ min: 1, max: 366 * 86_400 }), fc.boolean())
  .map(([units, seconds]) => level(units, seconds * second + 1, 1))
  .map((rule) => ({ ...rule, room: Math.floor(Number.MAX_SAFE_INTEGER / rule.weight) }))

/** Decides which grants are refunded, and how long after the grant; gets the grant's time and number. */
export type Refunds = (atUs: number, index: number) => number | undefined

/** How a refund is credited. */
export type Credit = typeof refund

/** A grant, and its refunds. */
export interface Known extends Entry {
  refunded: number
}

/** Refunds some units of a grant, and records that. */
export function giveBack(
  rules: readonly Rule[],
  history: readonly Known[],
  index: number,
  units: number,
  bucket: Bucket,
  credit: Credit = refund,
): Bucket {
  const [one, ...since] = history.slice(index)
  if (one === undefined) return bucket
  one.refunded += units
  const net = since.map(({ atUs, units: all, refunded }) => ({ atUs, units: all - refunded }))
  return credit(rules, one.atUs, units, net, bucket)
}

/** The grants that were kept, under greedy demand of single units, when some are refunded late. */
export function keptGrants(rule: Rule, lengthUs: number, refunds: Refunds, credit: Credit): Grant[] {
  const rules = [rule]
  let bucket: Bucket = emptyBucket(rules, 0)
  const pending: { dueUs: number; index: number }[] = []
  const history: Known[] = []
  for (let nowUs = 0; nowUs < lengthUs;) {
    const due = pending.findIndex((one) => one.dueUs <= nowUs)
    const [back] = due < 0 ? [] : pending.splice(due, 1)
    const free = room(rules, bucket, nowUs)
    if (back !== undefined) bucket = giveBack(rules, history, back.index, 1, free.bucket, credit)
    else if (free.avail > 0) {
      const afterUs = refunds(nowUs, history.length)
      if (afterUs !== undefined) pending.push({ dueUs: nowUs + afterUs, index: history.length })
      history.push({ atUs: nowUs, units: 1, refunded: 0 })
      bucket = charge(rules, free.bucket, 1)
    } else nowUs = Math.min(free.nextUs, ...pending.map((one) => one.dueUs))
  }
  const late = new Set(pending.map((one) => one.index))
  return history.flatMap((one, i): Grant[] => (one.refunded > 0 || late.has(i) ? [] : [[one.atUs, one.units]]))
}

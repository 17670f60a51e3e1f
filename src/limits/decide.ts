/**
 * Decides limits: the arithmetic of buckets, pure and in integers. This is the specification; `limits/room/recorded_room.sql` and
 * `limits/ledger/append_ledger.sql` do the same in the store, and one suite of random histories compares them. The tests have the
 * parts that only the store and Redis carry out: `test/limits/specification.ts` for what happens to grants later, `ahead.ts` for
 * grants ahead of time, and `rebuild.ts` for what follows from a changed definition.
 *
 * Each rule has a debt; a unit adds `weight` to it, and a grant fits while `debt + weight <= capacity * weight`. The kinds
 * differ in what makes room again:
 * - rate (level, token bucket, GCRA): the debt drains with time, `debt' = max(0, debt - drain * elapsed)`; no division;
 * - pace: a debt like that of the rate before it, which drains faster and denies nothing. While it has room for some units
 *   (`debt + weight <= weight + drain * partUs`), the rate owes at most what leaves room for as many;
 * - window: the debt is what was granted in the current part of time and the 60 before it (`parts`). A span of 60 parts
 *   touches at most 61 of them, so no half-open span holds more than `capacity`;
 * - quota: the debt is what was granted in the period of the calendar; another period begins at its end (`quota.ts`);
 * - concurrency: the debt is what runs; only its end makes room.
 */
import { isConcurrency, isPace, isWindow, paceFull, paceOf, type Rule, windowParts } from './rule.ts'
import { unitsOwed, resetUs, rollQuota, spend, type Spent, unspent } from './quota.ts'

/** The time that stands for "time alone makes no room": the last microsecond of exact arithmetic. */
export const neverUs = Number.MAX_SAFE_INTEGER
/** The store counts units in 32 bits. */
const mostUnits = 2 ** 31 - 1

/** The use of a bucket, as of `atUs` (microseconds of the limiter's clock). One debt for each rule. */
export interface Bucket {
  atUs: number
  debt: readonly number[]
  /** Units granted in each part of a window, the newest first; one list for each rule; empty if no rule is a window. */
  parts: readonly (readonly number[])[]
  /** The units granted in periods of the calendar; one for each rule; empty if no rule is a quota. */
  spent: readonly Spent[]
  /** No grant before this time, because the vendor demanded a pause. 0: no hold. */
  holdUs: number
  /** Above 0: the vendor has refused requests, so each grant holds the bucket for so long. */
  trialUs: number
  /** The last unit that was granted ahead of time (`test/limits/ahead.ts`) may be used from then on; none is granted before. 0: none was. */
  aheadUs: number
}

/** Returns a bucket that was never used. */
export function emptyBucket(rules: readonly Rule[], atUs: number): Bucket {
  const parts = rules.some(isWindow) ? rules.map(() => Array<number>(windowParts + 1).fill(0)) : []
  const spent = rules.some(({ quota }) => quota) ? rules.map(() => unspent) : []
  return { atUs, debt: rules.map(() => 0), parts, spent, holdUs: 0, trialUs: 0, aheadUs: 0 }
}

/** The room of a bucket at one time. */
export interface Room {
  /** The bucket, drained to `max(nowUs, bucket.atUs)`: time never goes backwards for a bucket. */
  bucket: Bucket
  /** Jobs of one unit that fit now: the smaller of `units` and `places`. */
  avail: number
  /** Units that are free by the rules that count units. */
  units: number
  /** Places that are free by concurrency, which counts jobs whatever they cost. */
  places: number
  /** When `need` units and a place are free. */
  nextUs: number
}

/** Returns a bucket as of `nowUs`; time never goes backwards for it. */
export function drainBucket(rules: readonly Rule[], bucket: Bucket, nowUs: number): Bucket {
  const atUs = Math.max(nowUs, bucket.atUs)
  const parts = bucket.parts.map((list, i) => aged(rules[i] as Rule, list, bucket.atUs, atUs))
  const spent = bucket.spent.map((one, i) => {
    const { quota } = rules[i] as Rule
    return quota === undefined ? one : rollQuota(quota, one, atUs)
  })
  const debt = rules.map((rule, i) => {
    if (isWindow(rule)) return (parts[i] ?? []).reduce((sum, one) => sum + one, 0)
    if (rule.quota !== undefined) return unitsOwed(rule.quota, spent[i] ?? unspent, atUs)
    return drainDebt(rule, bucket.debt[i] ?? 0, atUs - bucket.atUs)
  })
  return { ...bucket, atUs, debt, parts, spent }
}

/** Returns the debts after each pace has made room for its rate. */
function easeByPaces(rules: readonly Rule[], debt: readonly number[]): readonly number[] {
  return debt.map((own, i) => {
    const { capacity: most, weight } = rules[i] as Rule
    const pace = paceOf(rules, i)
    if (pace === undefined) return own
    const free = Math.floor((paceFull(pace) - (debt[i + 1] ?? 0)) / pace.weight)
    return free < 1 ? own : Math.min(own, (most - free) * weight)
  })
}

/**
 * Drains a bucket to `nowUs` and returns what is free. Grants nothing.
 * @param isFurther true for one more request of a running job, which has its place already: concurrency does not count
 * @param need units that are waited for; more than a rule can hold count as all that it can hold
 */
export function room(rules: readonly Rule[], bucket: Bucket, nowUs: number, isFurther = false, need = 1): Room {
  const then = drainBucket(rules, bucket, nowUs)
  const seen = { ...then, debt: easeByPaces(rules, then.debt) }
  const { atUs, debt, holdUs, trialUs } = seen
  const counts = (rule: Rule) => !isPace(rule) && !(isFurther && isConcurrency(rule))
  const free = (isPlaces: boolean) =>
    rules.map((rule, i) =>
      counts(rule) && isConcurrency(rule) === isPlaces
        ? Math.floor((rule.capacity * rule.weight - (debt[i] ?? 0)) / rule.weight)
        : mostUnits,
    )
  const isHeld = holdUs > atUs
  const isAhead = atUs > nowUs && atUs === bucket.aheadUs
  const units = isHeld || isAhead ? 0 : Math.max(0, Math.min(mostUnits, ...free(false)))
  const places = Math.max(0, Math.min(trialUs > 0 ? 1 : mostUnits, ...free(true)))
  const freeAt = rules.map((rule, i) => (counts(rule) ? freeUs(rules, seen, i, need) : nowUs))
  return {
    bucket: seen,
    avail: Math.min(units, places),
    units,
    places,
    nextUs: Math.max(nowUs, isAhead ? atUs : 0, holdUs, ...freeAt),
  }
}

function drainDebt(rule: Rule, debt: number, elapsedUs: number): number {
  if (isConcurrency(rule)) return debt
  return elapsedUs > Math.floor(debt / rule.drain) ? 0 : debt - rule.drain * elapsedUs
}

/** Returns the parts of a window as of a later time: new ones at the front, as many dropped at the end. */
function aged(rule: Rule, list: readonly number[], fromUs: number, toUs: number): readonly number[] {
  if (!isWindow(rule)) return list
  const by = Math.min(windowParts + 1, Math.floor(toUs / rule.partUs) - Math.floor(fromUs / rule.partUs))
  return [...Array<number>(by).fill(0), ...list.slice(0, windowParts + 1 - by)]
}

/** Returns when `units` are free under the rule at `i` of a bucket as it is now. */
function freeUs(rules: readonly Rule[], bucket: Bucket, i: number, units: number): number {
  const rule = rules[i] as Rule
  const { atUs } = bucket
  const debt = bucket.debt[i] ?? 0
  const need = isConcurrency(rule) ? 1 : Math.min(Math.max(units, 1), rule.capacity)
  // (room - need) * weight is exact; debt + need * weight might pass 2^53.
  const missing = debt - (rule.capacity - need) * rule.weight
  // The result has no time in it, so a clock that stepped back does not matter.
  if (isConcurrency(rule)) return missing <= 0 ? 0 : neverUs
  if (missing <= 0) return atUs
  if (rule.quota !== undefined) return resetUs(rule.quota, bucket.spent[i] ?? unspent, rule.capacity, need)
  if (!isWindow(rule)) return atUs + Math.min(Math.ceil(missing / rule.drain), pacedUs(rules, bucket, i, need))
  let kept = 0
  const oldest = (bucket.parts[i] ?? []).findIndex((part) => (kept += part) > rule.capacity - need)
  return (Math.floor(atUs / rule.partUs) - oldest + windowParts + 1) * rule.partUs
}

/** Returns after how many microseconds the pace of the rule at `i` makes room for `need` units; never for many at once. */
function pacedUs(rules: readonly Rule[], bucket: Bucket, i: number, need: number): number {
  const pace = paceOf(rules, i)
  if (pace === undefined || need > Math.floor(paceFull(pace) / pace.weight)) return neverUs
  return Math.ceil(((bucket.debt[i + 1] ?? 0) + need * pace.weight - paceFull(pace)) / pace.drain)
}

/** Returns the parts of windows after `units` more (negative: fewer) were granted at `whenUs`; older parts are not counted. */
export function counted(rules: readonly Rule[], bucket: Bucket, whenUs: number, units: number): Bucket['parts'] {
  return bucket.parts.map((list, i) => {
    const rule = rules[i] as Rule
    const partOf = (us: number) => Math.floor(us / rule.partUs)
    const part = isWindow(rule) ? partOf(bucket.atUs) - partOf(whenUs) : -1
    return list.map((one, k) => (k === part ? Math.min(Math.max(0, one + units), mostUnits) : one))
  })
}

/** Returns what counts in periods after `units` more (negative: fewer) were granted at `whenUs`. */
export function spentAfter(rules: readonly Rule[], bucket: Bucket, whenUs: number, units: number): Bucket['spent'] {
  return bucket.spent.map((one, i) => {
    const { quota } = rules[i] as Rule
    return quota === undefined ? one : spend(quota, one, whenUs, units)
  })
}

/**
 * Returns the bucket after `units` more were granted at its own time; `units` may not exceed what `room` found free.
 * @param isFurther as for `room`
 * @param places number of jobs that the units are for
 */
export function charge(
  rules: readonly Rule[],
  bucket: Bucket,
  units: number,
  isFurther = false,
  places = units,
): Bucket {
  const more = (rule: Rule) => (isConcurrency(rule) ? (isFurther ? 0 : places) : units)
  return {
    ...bucket,
    debt: rules.map((rule, i) => (bucket.debt[i] ?? 0) + more(rule) * rule.weight),
    parts: counted(rules, bucket, bucket.atUs, units),
    spent: spentAfter(rules, bucket, bucket.atUs, units),
    holdUs:
      bucket.trialUs > 0 && units + places > 0 ? Math.max(bucket.holdUs, bucket.atUs + bucket.trialUs) : bucket.holdUs,
  }
}

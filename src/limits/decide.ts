/**
 * Where a limit is decided: the arithmetic of buckets, pure and in integers. This is the specification; `room.sql` and
 * `append_ledger.sql` do the same in the store, and one suite of random histories holds them to it.
 *
 * Each rule has a debt; a unit adds `weight` to it, and a grant fits while `debt + weight <= room * weight`. What makes
 * room again tells the kinds apart:
 * - rate (level, token bucket, GCRA): the debt drains with time, `debt' = max(0, debt - drain * elapsed)`; no division;
 * - window: the debt is what was granted in the part of time that is under way and the 60 before it (`slots`). A span
 *   of 60 parts touches 61 of them at most, so no half-open one holds more than `room`;
 * - quota: the debt is what was granted in the period of the calendar; another one begins at its end (`quota.ts`);
 * - concurrency: the debt is what runs; only `release` makes room.
 */
import { type Rule, windowParts } from './rule.ts'
import { owed, resetUs, respent, rolled, spend, type Spent, unspent } from './quota.ts'

/** "When time alone makes no room": the last microsecond of exact arithmetic. */
export const neverUs = Number.MAX_SAFE_INTEGER
/** What the store counts in 32 bits. */
const mostUnits = 2 ** 31 - 1

/** What a bucket has used, as of `atUs` (microseconds of the store's clock). One debt for each rule. */
export interface Bucket {
  atUs: number
  debt: readonly number[]
  /** Units granted in each part of a window, the newest first; one list for each rule, none at all without windows. */
  slots: readonly (readonly number[])[]
  /** What was granted in periods of the calendar; one for each rule, none at all without quotas. */
  spent: readonly Spent[]
  /** No grant before this time: the vendor asked for silence. 0 = none. */
  holdUs: number
}

const isWindow = (rule: Rule): boolean => rule.kind === 'window'
const isConcurrency = (rule: Rule): boolean => rule.kind === 'concurrency'

/** A bucket that was never used. */
export function emptyBucket(rules: readonly Rule[], atUs: number): Bucket {
  const slots = rules.some(isWindow) ? rules.map(() => Array<number>(windowParts + 1).fill(0)) : []
  const spent = rules.some(({ quota }) => quota) ? rules.map(() => unspent) : []
  return { atUs, debt: rules.map(() => 0), slots, spent, holdUs: 0 }
}

/** What a bucket allows at a time. */
export interface Room {
  /** The bucket drained to `max(nowUs, bucket.atUs)`: time never goes backwards for a bucket. */
  bucket: Bucket
  /** Jobs of one unit that fit now: the smaller of `units` and `places`. */
  avail: number
  /** Units free by what counts units. */
  units: number
  /** Places free by concurrency, which counts jobs whatever they cost. */
  places: number
  /** When `need` units are free, and a place. */
  nextUs: number
}

/**
 * Drains a bucket to `nowUs` and says what is free. Grants nothing.
 * @param isFurther for one more request of a job that runs: it has its place already, so concurrency does not count
 * @param need units that are waited for; more than a rule can hold are as many as it can
 */
export function room(rules: readonly Rule[], bucket: Bucket, nowUs: number, isFurther = false, need = 1): Room {
  const atUs = Math.max(nowUs, bucket.atUs)
  const slots = bucket.slots.map((list, i) => aged(rules[i] as Rule, list, bucket.atUs, atUs))
  const spent = bucket.spent.map((one, i) => {
    const { quota } = rules[i] as Rule
    return quota === undefined ? one : rolled(quota, one, atUs)
  })
  const debt = rules.map((rule, i) => {
    if (isWindow(rule)) return (slots[i] ?? []).reduce((sum, one) => sum + one, 0)
    if (rule.quota !== undefined) return owed(rule.quota, spent[i] ?? unspent, atUs)
    return drained(rule, bucket.debt[i] ?? 0, atUs - bucket.atUs)
  })
  const counts = (rule: Rule) => !(isFurther && isConcurrency(rule))
  const free = (isPlaces: boolean) =>
    rules.map((rule, i) =>
      counts(rule) && isConcurrency(rule) === isPlaces
        ? Math.floor((rule.room * rule.weight - (debt[i] ?? 0)) / rule.weight)
        : mostUnits,
    )
  const seen = { atUs, debt, slots, spent, holdUs: bucket.holdUs }
  const isHeld = bucket.holdUs > atUs
  const units = isHeld ? 0 : Math.max(0, Math.min(mostUnits, ...free(false)))
  const places = Math.max(0, Math.min(mostUnits, ...free(true)))
  const freeAt = rules.map((rule, i) => (counts(rule) ? freeUs(rule, seen, i, need) : nowUs))
  return {
    bucket: seen,
    avail: Math.min(units, places),
    units,
    places,
    nextUs: Math.max(nowUs, bucket.holdUs, ...freeAt),
  }
}

function drained(rule: Rule, debt: number, elapsedUs: number): number {
  if (isConcurrency(rule)) return debt
  return elapsedUs > Math.floor(debt / rule.drain) ? 0 : debt - rule.drain * elapsedUs
}

/** The parts of a window as seen later: new ones at the front, as many forgotten at the end. */
function aged(rule: Rule, list: readonly number[], fromUs: number, toUs: number): readonly number[] {
  if (!isWindow(rule)) return list
  const by = Math.min(windowParts + 1, Math.floor(toUs / rule.slotUs) - Math.floor(fromUs / rule.slotUs))
  return [...Array<number>(by).fill(0), ...list.slice(0, windowParts + 1 - by)]
}

/** When so many units are free under the rule at `i` of a bucket as it is now. */
function freeUs(rule: Rule, bucket: Bucket, i: number, units: number): number {
  const { atUs } = bucket
  const debt = bucket.debt[i] ?? 0
  const need = isConcurrency(rule) ? 1 : Math.min(Math.max(units, 1), rule.room)
  // (room - need) * weight is exact; debt + need * weight might pass 2^53.
  const missing = debt - (rule.room - need) * rule.weight
  // No time in it, so a clock that stepped back does not matter.
  if (isConcurrency(rule)) return missing <= 0 ? 0 : neverUs
  if (missing <= 0) return atUs
  if (rule.quota !== undefined) return resetUs(rule.quota, bucket.spent[i] ?? unspent, rule.room, need)
  if (!isWindow(rule)) return atUs + Math.ceil(missing / rule.drain)
  let kept = 0
  const oldest = (bucket.slots[i] ?? []).findIndex((part) => (kept += part) > rule.room - need)
  return (Math.floor(atUs / rule.slotUs) - oldest + windowParts + 1) * rule.slotUs
}

/** The parts of windows after `units` more (or less) were granted at `whenUs`; a part that is over counts no more. */
function counted(rules: readonly Rule[], bucket: Bucket, whenUs: number, units: number): Bucket['slots'] {
  return bucket.slots.map((list, i) => {
    const rule = rules[i] as Rule
    const partOf = (us: number) => Math.floor(us / rule.slotUs)
    const part = isWindow(rule) ? partOf(bucket.atUs) - partOf(whenUs) : -1
    return list.map((one, k) => (k === part ? Math.min(Math.max(0, one + units), mostUnits) : one))
  })
}

/** What counts in periods after `units` more (or less) were granted at `whenUs`. */
function spentAfter(rules: readonly Rule[], bucket: Bucket, whenUs: number, units: number): Bucket['spent'] {
  return bucket.spent.map((one, i) => {
    const { quota } = rules[i] as Rule
    return quota === undefined ? one : spend(quota, one, whenUs, units)
  })
}

/**
 * The bucket after `units` more were granted at its own time; `units` may not exceed what `room` said is free.
 * @param isFurther as for `room`
 * @param places how many jobs the units are for
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
    slots: counted(rules, bucket, bucket.atUs, units),
    spent: spentAfter(rules, bucket, bucket.atUs, units),
  }
}

/** The bucket after `units` of what ran have ended. */
export function release(rules: readonly Rule[], bucket: Bucket, units: number): Bucket {
  return {
    ...bucket,
    debt: rules.map((rule, i) => {
      const debt = bucket.debt[i] ?? 0
      return isConcurrency(rule) ? Math.max(0, debt - units * rule.weight) : debt
    }),
  }
}

/** Units granted at a time, those left out that were given back since. */
export interface Entry {
  atUs: number
  units: number
}

/**
 * The bucket after `units` granted at `grantedUs` turned out never to have been used: as if they had not been granted.
 * `since` is what else was granted after them, in order. By itself that would have filled an empty bucket so far; the
 * debt never falls below it, for what drained in the meantime only because of these units is gone. Credit in full would
 * make room that the vendor does not have: 134 kept grants fit where 100 may. Places in concurrency rules are not
 * given back here: they are released when the attempt ends, used or not.
 */
export function refund(
  rules: readonly Rule[],
  grantedUs: number,
  units: number,
  since: readonly Entry[],
  bucket: Bucket,
): Bucket {
  let after = emptyBucket(rules, grantedUs)
  for (const entry of since) after = charge(rules, room(rules, after, entry.atUs).bucket, entry.units)
  const { debt } = room(rules, after, bucket.atUs).bucket
  return {
    ...bucket,
    debt: rules.map((rule, i) => {
      if (isConcurrency(rule)) return bucket.debt[i] ?? 0
      return Math.max((bucket.debt[i] ?? 0) - units * rule.weight, debt[i] ?? 0)
    }),
    slots: counted(rules, bucket, grantedUs, -units),
    spent: spentAfter(rules, bucket, grantedUs, -units),
  }
}

/**
 * The bucket after a grant of `grantedUs` turned out to have used `more` units than it was granted (negative: fewer). Fewer:
 * a refund, in full only where the vendor itself refunds (`isFull`). More is a debt, which may exceed what the bucket holds:
 * nothing is granted until it has drained. A window counts it in the part of the grant, or, when that is over, in its oldest,
 * so that it is not forgotten before it was seen.
 */
export function settle(
  rules: readonly Rule[],
  grantedUs: number,
  more: number,
  since: readonly Entry[],
  bucket: Bucket,
  isFull = false,
): Bucket {
  if (more <= 0 && !isFull) return refund(rules, grantedUs, -more, since, bucket)
  const oldest = (rule: Rule) => (Math.floor(bucket.atUs / rule.slotUs) - windowParts) * rule.slotUs
  const owed = (rule: Rule, debt: number) => (isConcurrency(rule) ? debt : Math.max(0, debt + more * rule.weight))
  return {
    ...bucket,
    debt: rules.map((rule, i) => owed(rule, bucket.debt[i] ?? 0)),
    slots: bucket.slots.map((_, i) => {
      const rule = rules[i] as Rule
      const whenUs = more > 0 && isWindow(rule) ? Math.max(grantedUs, oldest(rule)) : grantedUs
      return counted(rules, bucket, whenUs, more)[i] ?? []
    }),
    spent: spentAfter(rules, bucket, grantedUs, more),
  }
}

/**
 * The bucket after the vendor asked for silence: no grant for `us` microseconds. Only ever lengthens a hold. It counts
 * from the bucket's own time, so that a clock which stepped back cannot make it end before it began.
 */
export function hold(bucket: Bucket, us: number): Bucket {
  return { ...bucket, holdUs: Math.max(bucket.holdUs, bucket.atUs + us) }
}

/**
 * The bucket under a changed definition: as if the new rules had been in force for as long as they look back. `granted`
 * is what was granted and kept, in order. So no window that reaches into the new definition holds more than it allows,
 * and nothing older stalls it. What runs goes on to run, unless it was not counted for a while: then `dispatch` counts it
 * anew, and what is not counted is none.
 * @param defined every definition since the bucket's state was written: that one first, the one in force last
 */
export function rebuild(defined: readonly (readonly Rule[])[], granted: readonly Entry[], bucket: Bucket): Bucket {
  const { atUs, holdUs } = bucket
  const after = defined.at(-1) ?? []
  const wasCounted = defined.every((rules) => rules.some(isConcurrency))
  const places = (defined[0] ?? []).findIndex(isConcurrency)
  const running = wasCounted ? (bucket.debt[places] ?? 0) : 0
  const rules = after.map((rule) => {
    const seen = granted.filter((entry) => entry.atUs > atUs - rule.spanUs)
    let own = emptyBucket([rule], seen[0]?.atUs ?? atUs)
    for (const entry of seen) own = charge([rule], room([rule], own, entry.atUs).bucket, entry.units)
    return room([rule], own, atUs).bucket
  })
  const spent = after.map(({ quota, room: units }) =>
    quota === undefined ? unspent : respent(quota, units, granted, atUs),
  )
  return {
    atUs,
    spent: after.some(({ quota }) => quota) ? spent : [],
    debt: after.map((rule, i) => (isConcurrency(rule) ? running : (rules[i]?.debt[0] ?? 0))),
    slots: after.some(isWindow) ? rules.map((own) => own.slots[0] ?? Array<number>(windowParts + 1).fill(0)) : [],
    holdUs,
  }
}

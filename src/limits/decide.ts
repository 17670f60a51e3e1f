/**
 * Where a limit is decided: the arithmetic of buckets, pure and in integers. This is the specification; `room.sql` and
 * `charge.sql` do the same in the store, and one suite of random histories holds them to it.
 *
 * A level rule's state is a debt that drains with time: `debt' = max(0, debt - drain * elapsed)`; a unit adds `weight`;
 * a grant fits while `debt + weight <= room * weight`. The debt form needs no division, so it is exact.
 */
import type { Rule } from './limit.ts'

/** What a bucket has used, as of `atUs` (microseconds of the store's clock). One debt for each rule. */
export interface Bucket {
  atUs: number
  debt: readonly number[]
  /** No grant before this time: the vendor asked for silence. 0 = none. */
  holdUs: number
}

/** A bucket that was never used. */
export function emptyBucket(rules: readonly Rule[], atUs: number): Bucket {
  return { atUs, debt: rules.map(() => 0), holdUs: 0 }
}

/** What a bucket allows at a time. */
export interface Room {
  /** The bucket drained to `max(nowUs, bucket.atUs)`: time never goes backwards for a bucket. */
  bucket: Bucket
  /** Units free now. */
  avail: number
  /** When one unit is free. */
  nextUs: number
}

/** Drains a bucket to `nowUs` and says what is free. Grants nothing. */
export function room(rules: readonly Rule[], bucket: Bucket, nowUs: number): Room {
  const atUs = Math.max(nowUs, bucket.atUs)
  const elapsed = atUs - bucket.atUs
  const debt = rules.map((rule, i) => {
    const before = bucket.debt[i] ?? 0
    return elapsed > Math.floor(before / rule.drain) ? 0 : before - rule.drain * elapsed
  })
  const units = rules.map((rule, i) => Math.floor((rule.room * rule.weight - (debt[i] ?? 0)) / rule.weight))
  const free = rules.map((rule, i) => {
    // (room - 1) * weight is exact; debt + weight might pass 2^53.
    const missing = (debt[i] ?? 0) - (rule.room - 1) * rule.weight
    return atUs + Math.max(0, Math.ceil(missing / rule.drain))
  })
  return {
    bucket: { atUs, debt, holdUs: bucket.holdUs },
    avail: bucket.holdUs > atUs ? 0 : Math.max(0, Math.min(...units)),
    nextUs: Math.max(bucket.holdUs, ...free),
  }
}

/** The bucket after `units` more were granted at its own time; `units` may not exceed what `room` said is free. */
export function charge(rules: readonly Rule[], bucket: Bucket, units: number): Bucket {
  return { ...bucket, debt: rules.map((rule, i) => (bucket.debt[i] ?? 0) + units * rule.weight) }
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
 * make room that the vendor does not have: 134 kept grants fit where 100 may.
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
    debt: rules.map((rule, i) => Math.max((bucket.debt[i] ?? 0) - units * rule.weight, debt[i] ?? 0)),
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
 * The bucket under a changed definition. Debt is the most that was granted in any span, less what drains in it; so a
 * rule is owed no more than any old rule that drains no faster was owed, in units. When all old rules drained faster,
 * what they drained is unknown, and the most that any of them was owed is kept. Either way nothing held is forgotten.
 */
export function redebt(before: readonly Rule[], after: readonly Rule[], bucket: Bucket): Bucket {
  const debt = after.map((rule) => {
    const owed = before.map((old, i) => {
      const slower = BigInt(old.drain) * BigInt(rule.weight) <= BigInt(rule.drain) * BigInt(old.weight)
      const scaled = BigInt(bucket.debt[i] ?? 0) * BigInt(rule.weight) + BigInt(old.weight) - 1n
      return { slower, debt: Number(scaled / BigInt(old.weight)) }
    })
    const bound = owed.filter((one) => one.slower).map((one) => one.debt)
    return bound.length > 0 ? Math.min(...bound) : Math.max(...owed.map((one) => one.debt))
  })
  return { ...bucket, debt }
}

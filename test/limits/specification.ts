/** What happens to grants after the decision (`src/limits/decide.ts`): the specification of the SQL and the Lua that do the same. */
import { type Bucket, charge, counted, drainBucket, emptyBucket, spentAfter } from '../../src/limits/decide.ts'
import { isConcurrency, isWindow, type Rule, windowParts } from '../../src/limits/rule.ts'

/** Returns the bucket after `units` of the running jobs have ended. */
export function release(rules: readonly Rule[], bucket: Bucket, units: number): Bucket {
  return {
    ...bucket,
    debt: rules.map((rule, i) => {
      const debt = bucket.debt[i] ?? 0
      return isConcurrency(rule) ? Math.max(0, debt - units * rule.weight) : debt
    }),
  }
}

/** Units granted at one time, without those that were given back since. */
export interface Entry {
  atUs: number
  units: number
}

/**
 * Returns the bucket after `units` granted at `grantedUs` turned out not to have been used: as if they had not been
 * granted. `since` has the grants after that, in order. The debt never falls below the debt that those grants alone
 * would have left in an empty bucket, because the time in which these units drained has passed. Credit in full would
 * make room that the vendor does not have: 134 kept grants would fit where 100 may. Places of concurrency rules are not
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
  for (const entry of since) after = charge(rules, drainBucket(rules, after, entry.atUs), entry.units)
  const { debt } = drainBucket(rules, after, bucket.atUs)
  return {
    ...bucket,
    debt: rules.map((rule, i) => {
      const own = bucket.debt[i] ?? 0
      // A pace may have made room since, which the grants alone do not show.
      return isConcurrency(rule) ? own : Math.max(own - units * rule.weight, Math.min(own, debt[i] ?? 0))
    }),
    parts: counted(rules, bucket, grantedUs, -units),
    spent: spentAfter(rules, bucket, grantedUs, -units),
  }
}

/**
 * Returns the bucket after a grant of `grantedUs` turned out to have used `more` units than it was granted (negative:
 * fewer). Fewer is a refund, in full only if the vendor itself refunds (`isFull`). More is a debt, which may exceed what
 * the bucket holds: nothing is granted until it has drained. A window counts it in the part of the grant, or, if that part
 * is over, in its oldest part, so that it is not dropped before it has counted.
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
  const oldest = (rule: Rule) => (Math.floor(bucket.atUs / rule.partUs) - windowParts) * rule.partUs
  const owed = (rule: Rule, debt: number) => (isConcurrency(rule) ? debt : Math.max(0, debt + more * rule.weight))
  return {
    ...bucket,
    debt: rules.map((rule, i) => owed(rule, bucket.debt[i] ?? 0)),
    parts: bucket.parts.map((_, i) => {
      const rule = rules[i] as Rule
      const whenUs = more > 0 && isWindow(rule) ? Math.max(grantedUs, oldest(rule)) : grantedUs
      return counted(rules, bucket, whenUs, more)[i] ?? []
    }),
    spent: spentAfter(rules, bucket, grantedUs, more),
  }
}

/**
 * Returns the bucket after the vendor demanded a pause: no grant for `us` microseconds. Only ever lengthens a hold. The
 * hold counts from the bucket's own time, so that after a backward step of the clock it cannot end before it began.
 */
export function hold(bucket: Bucket, us: number): Bucket {
  return { ...bucket, holdUs: Math.max(bucket.holdUs, bucket.atUs + us) }
}

/**
 * Returns the bucket after the vendor refused a request: held for `us`, and from then on each grant holds it for `trialUs`,
 * until the vendor accepts a request.
 */
export function refuse(bucket: Bucket, us: number, trialUs: number): Bucket {
  return { ...hold(bucket, us), trialUs }
}

/** Returns the bucket after the vendor accepted a request again. */
export function accept(bucket: Bucket): Bucket {
  return bucket.trialUs === 0 ? bucket : { ...bucket, holdUs: Math.min(bucket.holdUs, bucket.atUs), trialUs: 0 }
}

/** Finds the limit that a vendor's count concerns, and the part of the vendor's window that it covers. Pure. */
import type { Count } from '../vendors/answer.ts'
import type { Limit } from './limit.ts'
import { type Rule, withPaces } from './rule.ts'
import { countsUnits } from './kind.ts'

/** A limit, as far as it matters here. */
export type Counted = Pick<Limit, 'name' | 'rules' | 'answers' | 'cost' | 'vendor' | 'grantUs' | 'transitUs'>

/** A vendor's count, as far as it concerns one limit. Times in ms, as of the answer. */
export interface Match {
  /** Name of the limit. */
  readonly limit: string
  /** Units that the vendor allows in its window, or the limit does, whichever is fewer. */
  readonly most: number
  /** Units that the vendor has left. */
  readonly left: number
  /** The vendor's limit, as it states it. */
  readonly vendorMost: number
  /** Length of the vendor's window. */
  readonly windowMs: number
  /** Time until the count begins anew, if stated. */
  readonly resetMs: number | undefined
  /** True if all units come back at the reset; false: not known. */
  readonly isFixed: boolean
  /** How long before the window's begin a request that counts in it may have been granted. */
  readonly marginMs: number
}

/** A quota's window and a vendor's may differ by this part of their length: months, and days on which clocks are set. */
const calendarPart = 0.15

function hasLength(rule: Rule, windowMs: number): boolean {
  const ownMs = rule.windowUs / 1_000
  return Math.abs(ownMs - windowMs) <= (rule.kind === 'quota' ? calendarPart * windowMs : 1)
}

/**
 * Returns the rule that a count is about: that of the same length; where the vendor states none, the one of the same size,
 * or the only one if the vendor names the limit itself.
 */
function ruleOf({ name, rules }: Counted, { windowMs, limit, policy }: Count): Rule | undefined {
  const counting = withPaces(rules)
    .map(({ rule }) => rule)
    .filter(countsUnits)
  if (windowMs !== undefined) return counting.find((rule) => hasLength(rule, windowMs))
  const alike = counting.find(({ units }) => units === limit)
  return alike ?? (policy === name && counting.length === 1 ? counting[0] : undefined)
}

/** Vendors round their times, and clocks differ. */
const slackMs = 2_000

function matchOf(limit: Counted, count: Count): Match | undefined {
  const { remaining: left, limit: vendorMost, resetMs } = count
  const rule = ruleOf(limit, count)
  if (rule === undefined || left === undefined || vendorMost === undefined) return undefined
  const windowMs = count.windowMs ?? rule.windowUs / 1_000
  // It begins anew later than this window can: it is the count of another one.
  const isSure = count.windowMs !== undefined || count.policy === limit.name
  if (!isSure && resetMs !== undefined && resetMs > windowMs + slackMs) return undefined
  return {
    limit: limit.name,
    most: Math.min(rule.units, vendorMost),
    left,
    vendorMost,
    windowMs,
    resetMs,
    isFixed: count.isFixed === true || limit.vendor?.algorithm === 'fixed window',
    marginMs: (limit.grantUs + limit.transitUs) / 1_000,
  }
}

/**
 * Returns what the counts of one answer show about the limits of its request; of several counts for one limit the one with
 * the fewest units left. Only limits whose requests take one unit each count requests as a vendor does. If some of the
 * limits name a vendor, counts concern only these. A count that has the name of one of the limits concerns that limit
 * alone.
 */
export function matchesOf(limits: readonly Counted[], counts: readonly Count[]): Match[] {
  const named = limits.filter(({ answers }) => answers !== undefined)
  const candidates = (named.length > 0 ? named : limits).filter(({ cost }) => cost === 1)
  const matches = new Map<string, Match>()
  for (const count of counts) {
    if (count.unit !== 'requests' && count.unit !== 'other') continue
    const own = limits.some(({ name }) => name === count.policy)
    for (const limit of candidates) {
      if (own && limit.name !== count.policy) continue
      const match = matchOf(limit, count)
      const other = matches.get(limit.name)
      if (match !== undefined && (other === undefined || match.left < other.left)) matches.set(limit.name, match)
    }
  }
  return [...matches.values()]
}

/** Observations of one vendor's window. Times in ms of the monotonic clock. */
interface Look {
  readonly atMs: number
  readonly resetAtMs: number
  readonly used: number
}

/** Vendors state times in whole seconds. */
const roundedMs = 1_500
/** How long the window must have kept its end. */
const keptMs = 3_000

/**
 * Finds out whether a vendor's window is fixed: its end then stays where it is while units are used. The end of a sliding
 * window, or the time at which a bucket is full, moves on with each of them.
 */
export class WindowWitness {
  #first: Look | undefined
  #isFixed = false

  /** Adds what an answer shows; returns true once the window is known to be fixed. */
  recordCount({ vendorMost, left, windowMs, resetMs, isFixed }: Match, atMs: number): boolean {
    if (isFixed || resetMs === undefined) return isFixed
    const now: Look = { atMs, resetAtMs: atMs + resetMs, used: vendorMost - left }
    const first = this.#first
    if (first === undefined || atMs > first.resetAtMs - roundedMs) {
      this.#first = now
    } else if (Math.abs(now.resetAtMs - first.resetAtMs) > roundedMs) {
      this.#first = now
      this.#isFixed = false
    } else if (atMs - first.atMs >= keptMs && now.used - first.used > (2 * keptMs * vendorMost) / windowMs) {
      // More than a bucket gives back in the time by which the end may have been rounded.
      this.#isFixed = true
    }
    return this.#isFixed
  }
}

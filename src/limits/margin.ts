/**
 * The margin of a limit: how much the time from a grant to its request's arrival may vary. It is the life of a grant, which
 * is enforced, plus how much the way varies (transit), which is stated or measured. Pure. docs/margins.md has the argument.
 */
import { type Duration, durationMs } from '../core/rate.ts'
import type { LimitNumbers } from './numbers.ts'
import { badLimit, type Rule } from './rule.ts'
import { slides } from './kind.ts'

/** How long ahead of time units are granted at most, in microseconds, as `limits/room/most_ahead_us.sql` has it. */
export const aheadMostUs = 200_000
/**
 * How long after the store's decision the instant of a grant is at most, in microseconds: a second limiter may take 0.8 s to
 * confirm it, for 0.2 s later.
 */
const laterMostUs = 1_000_000

/** Both parts in microseconds; the windows of a limit are widened by their sum. */
export interface Margin {
  /** Life of a grant: after it, the request must not be written any more. */
  readonly grantUs: number
  /** How much the way to the vendor may vary. */
  readonly transitUs: number
}

/** The measurements of the fleet for one limit. */
export interface Measured {
  /** Age, in microseconds, that nearly all grants had at most when they were used; undefined: some host has used too few. */
  readonly ageUs: number | undefined
  /** The part of the newest grants that this process received too late to use them, 0 to 1. Only this makes the life grow. */
  readonly latePart: number
  /** The largest such part of any process. If it is too large, nothing shrinks. */
  readonly latePartMost: number
  /** The same part of the grants of all processes together. Only this makes the life longer than stated, which costs all of them a part of the rate. */
  readonly latePartOfAll: number
  /** Longest answer less the shortest one, in microseconds, of all hosts; undefined: not known of all that may call. */
  readonly wayUs: number | undefined
}

/** The facts about a limit from which its next margin is computed. */
export interface Course {
  readonly inForce: Margin
  /** The margin that holds while nothing is measured. */
  readonly stated: Margin
  readonly measured: Measured
  /** True if transit is measured. */
  readonly isMeasured: boolean
  /** True if what is measured changes nothing, because others count by this definition too: then the margin becomes what is stated. */
  readonly isFixed?: boolean
  /** The rules in force. */
  readonly rules: readonly Pick<Rule, 'kind' | 'windowUs'>[]
  /** How long the present definition has been in force at least, in microseconds. */
  readonly steadyUs: number
}

const grantUsMost = 100_000
/** How much the way varies unless it is stated or measured. */
export const wayUsStated = 100_000
const transitMaxUs = 86_400_000_000
/** How long a margin is in force before it shrinks. */
const patienceUs = 30_000_000
/** In a longer window the margin is too small a part to be worth a change, and samples are not kept for so long. */
const shortUsMost = 60_000_000
/**
 * A life that is shorter than stated grows when more than this part of the grants come too late, because those are lost; a
 * longer one costs more, so it takes more than that part, and of the whole fleet's grants.
 */
const lateLeast = 0.03
const lateMost = 0.5
/** A part that shrinks by less than this stays. */
const worthwhile = 0.8
/** Lives and variations that are chosen, in microseconds; so small changes of what is measured change nothing. */
const steps = [5, 7, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, 300, 400, 600, 1_000].map((ms) => ms * 1_000)
const lifeUsLeast = 10_000
const lifeUsMost = 1_000_000

/** Returns the smallest step that is not below this many microseconds. */
function stepFrom(us: number): number {
  return steps.find((step) => step >= us) ?? lifeUsMost
}

/**
 * Returns the margin that holds while nothing is measured: a grant lives 100 ms, at most a tenth of the shortest window, and
 * the way varies by 100 ms unless `transit` is a number.
 * @throws UsageError SLUICE_BAD_LIMIT, SLUICE_BAD_DURATION
 */
export function statedMargin(
  name: string,
  transit: Duration | 'measured' = 'measured',
  windowsUs: readonly number[] = [],
): Margin {
  const transitUs = transit === 'measured' ? wayUsStated : Math.ceil(durationMs(transit) * 1_000)
  if (transitUs > transitMaxUs) throw badLimit(name, `transit is ${transit}; it may be at most a day`)
  return { grantUs: Math.min(grantUsMost, ...windowsUs.map((us) => Math.floor(us / 10))), transitUs }
}

/** True if numbers leave it to the fleet to measure how much the way varies. */
export function isMeasured({ transit }: LimitNumbers): boolean {
  return transit === undefined
}

/** True if the margin of a rule with this window may be below what is stated. Quotas, and longer windows, keep that at least. */
export function isShort(windowUs: number): boolean {
  return windowUs <= shortUsMost
}

/** Returns the windows of the rules whose margin may be below what is stated, in microseconds. */
function shortWindowsUs(rules: Course['rules']): number[] {
  return rules.flatMap((rule) => (slides(rule) && isShort(rule.windowUs) ? [rule.windowUs] : []))
}

/**
 * True if a request of the limit whose answer is slow may be charged once more instead of widening the margin: the charge
 * is recorded while the request's grant is still counted. A longer window would lose by it what a short one gains.
 */
export function mayCharge(rules: Course['rules']): boolean {
  return (
    shortWindowsUs(rules).length > 0 &&
    rules.every((rule) => !slides(rule) || isShort(rule.windowUs)) &&
    Math.min(...shortWindowsUs(rules)) >= 1_000_000
  )
}

/**
 * Returns the margin to put in force next; undefined: the present one stays. It widens at once. It shrinks one part at a time:
 * first the life of new grants, within the same sum, so that no rule changes; then, when the last grant that lived longer
 * has left every window, the sum. So all grants in a window that is counted with the smaller margin keep to it.
 */
export function nextMargin(course: Course): Margin | undefined {
  const { inForce, stated, measured, isMeasured, isFixed = false } = course
  if (isFixed) {
    const wide = joinMargins(inForce, stated)
    return wide.grantUs > inForce.grantUs || wide.transitUs > inForce.transitUs ? wide : narrowMargin(course, stated, 1)
  }
  const { ageUs, latePart, latePartMost, latePartOfAll, wayUs } = measured
  const shortUs = shortWindowsUs(course.rules)
  const least = shortUs.length > 0 ? { grantUs: lifeUsLeast, transitUs: 0 } : stated
  const life = ageUs === undefined ? inForce.grantUs : Math.max(least.grantUs, stepFrom(ageUs * 1.5))
  const way =
    isMeasured && wayUs !== undefined
      ? Math.min(stated.transitUs, Math.max(least.transitUs, stepFrom(wayUs)))
      : stated.transitUs
  const sumUs = inForce.grantUs + inForce.transitUs
  const isTight = way > inForce.transitUs && (!isMeasured || wayUs === undefined || wayUs > inForce.transitUs)
  const isLong = latePart > lateMost && latePartOfAll > lateMost
  const longest = isLong ? lifeUsMost : latePart > lateLeast ? stated.grantUs : 0
  const grantUs = Math.max(inForce.grantUs, Math.min(longest, Math.max(life, stepFrom(inForce.grantUs + 1))))
  const transitUs = Math.max(isTight ? way : Math.min(way, inForce.transitUs), sumUs - grantUs)
  if (grantUs > inForce.grantUs || isTight) return { grantUs, transitUs }
  if (latePartMost > lateLeast) return undefined
  return narrowMargin(course, { grantUs: life, transitUs: way }, worthwhile)
}

/** Returns the next margin on the way to a smaller one, of which a part changes that is below `part` of itself now. */
function narrowMargin({ inForce, stated, rules, steadyUs }: Course, to: Margin, part: number): Margin | undefined {
  if (steadyUs < patienceUs) return undefined
  const sumUs = inForce.grantUs + inForce.transitUs
  if (to.grantUs < inForce.grantUs * part) return { grantUs: to.grantUs, transitUs: sumUs - to.grantUs }
  // Long windows have a wider margin than the stated one only if the whole margin is wider.
  const countedUs =
    sumUs > stated.grantUs + stated.transitUs
      ? rules.filter(slides).map((rule) => rule.windowUs)
      : shortWindowsUs(rules)
  const leftUs = Math.max(...countedUs, 0) + sumUs + laterMostUs
  if (to.transitUs < inForce.transitUs * part && steadyUs >= leftUs)
    return { grantUs: inForce.grantUs, transitUs: to.transitUs }
  return undefined
}

/**
 * Returns the margin that suits a process that has measured nothing: both parts are at least what is stated, and the sum, by
 * which earlier grants are counted, is at least the one in force. While a margin shrinks, its sum already allows for that.
 */
export function joinMargins(inForce: Margin, stated: Margin): Margin {
  const grantUs = Math.max(inForce.grantUs, stated.grantUs)
  const sumUs = inForce.grantUs + inForce.transitUs
  return { grantUs, transitUs: Math.max(stated.transitUs, sumUs - grantUs) }
}

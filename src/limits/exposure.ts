/**
 * Computes what a vendor can see and refuse at worst, by the way it counts: bounds over every demand, every phase of its
 * windows, and every delay within the margin J. They come from one curve, the steps of our schedule
 * (limits/guarantee.ts): A(L) is the most that arrives in a half-open span L, A+(L) in a closed one. A refused call counts
 * nothing at the vendor. With N calls in W:
 * - fixed window: one of its windows holds at most A(W), and N pass: A(W) - N.
 * - sliding log: at a refusal N passed within the last W; with all that was refused in it they are at most A(W): A(W) - N.
 * - sliding counter (previous * (1 - f) + current + 1 <= N, f of the window over): at the last refusal of a window, `a` of
 *   its C calls had passed, with p * (1 - f) + a + 1 > N. So fewer than C + p * (1 - f) - N + 1 were refused, where
 *   C <= A+(f * W), p <= min(N, A(W)) and C + p <= A+(W + f * W). Between the steps that falls with f, and over the steps
 *   it is linear: the greatest is at the first, the second, or the last step.
 * - bucket of b refilled at N / W: since it was last full, L ago, more than b + L * N / W - 1 passed. So fewer than
 *   A+(L) - b - L * N / W + 1 were refused since, which over the steps falls, unless our rate is above the vendor's: then
 *   there is no bound.
 * A rate with a pace has two lines, of which the higher counts. By fixed window, log and bucket the greater of both bounds
 * holds. By a counter, with both lines without their steps: up to x of a window C <= A+(x), and C + p <= A+(W + x), so that
 * C + p * (1 - x / W) <= min(A+(x) + p * (1 - x / W), A+(x) * x / W + A+(W + x) * (1 - x / W)). Where neither line crosses
 * the other, the first is greatest at an end, and the second there or where its slope is 0.
 * If a limit has several rules, each is a bound, so the least of them holds. `test/limits/exposure.test.ts` runs the
 * vendors' own arithmetic in search of more refusals.
 */
import { amount } from '../core/money.ts'
import type { ParsedRate } from '../core/rate.ts'
import { type Guarantee, guarantees, type Line, mostIn, type Steps, stepsIn, stepsOf } from './guarantee.ts'
import type { Limit } from './limit.ts'
import { withPaces } from './rule.ts'
import { algorithms, type VendorAlgorithm, type VendorRate } from './vendor.ts'
import { countsUnits } from './kind.ts'

/** The most that a vendor can see if it counts in one way. */
export interface VendorView {
  /** The rate that the vendor allows. */
  limit: string
  algorithm: VendorAlgorithm
  /** Capacity of a bucket, in calls. */
  burst?: number
  /** Most calls that arrive in any half-open window of its length. */
  worst: number
  /**
   * Most calls that it may refuse in one of its windows (of a bucket: from when it is full until it is full again),
   * whatever the demand. 0: safe. Infinity: our rate is above its own.
   */
  refused: number
}

/** The part of a limit that {@link vendorViews} reads. */
export type Seen = Pick<Limit, 'rules' | 'grantUs' | 'transitUs'> & {
  vendor?: VendorRate | null | undefined
  currency?: string | undefined
}

/**
 * Returns what the vendor can see and refuse at worst: for the way of counting that was stated, else for each known way (a
 * bucket also with a tenth of the limit as its capacity); for the limit that was stated, else for each of our own rates.
 */
export function vendorViews({ rules, grantUs, transitUs, vendor, currency }: Seen): VendorView[] {
  const marginUs = grantUs + transitUs
  const seen = withPaces(rules).flatMap(({ rule, pace }) => {
    const steps = stepsOf(rule, pace)
    return steps === undefined ? [] : [{ rule, steps }]
  })
  const ours = seen.map(({ steps }) => steps)
  const stated = vendor ?? undefined
  // A budget is ours: no vendor counts it.
  if (currency !== undefined && stated === undefined) return []
  const theirs = stated === undefined ? seen.map(({ rule }) => rule) : [stated]
  if (ours.length === 0) return []
  return theirs.flatMap((their) =>
    waysOf(their, stated).map(({ algorithm, burst }) => {
      const refusals = ours.map((steps) => refused[algorithm](steps, marginUs, { ...their, burst }))
      return {
        limit: their.rate,
        algorithm,
        ...(algorithm === 'bucket' ? { burst } : {}),
        worst: Math.min(...ours.map((steps) => mostIn(steps, their.windowUs + marginUs))),
        refused: Math.min(...refusals),
      }
    }),
  )
}

function waysOf(
  { units }: ParsedRate,
  stated: VendorRate | undefined,
): { algorithm: VendorAlgorithm; burst: number }[] {
  if (stated?.algorithm !== undefined) return [{ algorithm: stated.algorithm, burst: stated.burst ?? units }]
  const small = Math.max(1, Math.floor(units / 10))
  return [
    ...algorithms.map((algorithm) => ({ algorithm, burst: units })),
    ...(small < units ? [{ algorithm: 'bucket' as const, burst: small }] : []),
  ]
}

/** Rounding error of sums of fractions, which a vendor tolerates too. */
const tolerance = 1e-9

type Refused = (steps: Steps, marginUs: number, vendor: ParsedRate & { burst: number }) => number

const refused: Record<VendorAlgorithm, Refused> = {
  'fixed window': refusedByLog,
  'sliding log': refusedByLog,
  'sliding counter'(steps, marginUs, { units, windowUs }) {
    if (steps.pace !== undefined) return refusedByCounter(steps, steps.pace, marginUs, { units, windowUs })
    const { burst, weight, drain } = steps
    const everyUs = weight / drain
    const before = Math.min(
      units,
      mostIn(steps, windowUs + marginUs),
      mostIn({ ...steps, burst: steps.units }, windowUs),
    )
    const first = stepsIn(steps, marginUs, true)
    const last = stepsIn(steps, windowUs + marginUs)
    const sums = [first, first + 1, last].map((step) => {
      const atUs = Math.max(0, step * everyUs - marginUs)
      return step <= last ? burst + steps.units * step + before * (1 - atUs / windowUs) - units + 1 : 0
    })
    return Math.max(0, Math.ceil(Math.max(...sums) - tolerance) - 1)
  },
  bucket({ pace, ...steps }, marginUs, vendor) {
    const ofPace = pace === undefined ? 0 : refusedByBucket(pace, marginUs, vendor)
    return Math.max(refusedByBucket(steps, marginUs, vendor), ofPace)
  },
}

function refusedByBucket(
  steps: Line,
  marginUs: number,
  { units, windowUs, burst }: ParsedRate & { burst: number },
): number {
  const { weight, drain } = steps
  if (BigInt(steps.units) * BigInt(drain) * BigInt(windowUs) > BigInt(units) * BigInt(weight)) return Infinity
  const everyUs = weight / drain
  const first = stepsIn(steps, marginUs, true)
  const sums = [first, first + 1].map((step) => {
    const atUs = Math.max(0, step * everyUs - marginUs - steps.slackUs)
    return steps.burst + steps.units * step - burst - (atUs * units) / windowUs
  })
  return Math.max(0, Math.ceil(Math.max(...sums) - tolerance))
}

function refusedByCounter(
  steps: Steps,
  pace: Line,
  marginUs: number,
  { units, windowUs }: Pick<ParsedRate, 'units' | 'windowUs'>,
): number {
  const slope = ({ drain, weight }: Line) => drain / weight
  const at = (line: Line, us: number) => line.burst + slope(line) * (us + line.slackUs)
  const crossUs = (at(steps, 0) - at(pace, 0)) / (slope(pace) - slope(steps))
  const before = Math.min(units, mostIn(steps, windowUs + marginUs))
  const ends = [0, crossUs - marginUs, crossUs - marginUs - windowUs, windowUs]
    .map((us) => Math.min(Math.max(us, 0), windowUs))
    .toSorted((a, b) => a - b)
  const sums = ends.slice(1).map((toUs, i) => {
    const fromUs = ends[i] ?? 0
    const line = (us: number) => (us < crossUs ? steps : pace)
    const middleUs = (fromUs + toUs) / 2
    const [now, both] = [line(middleUs + marginUs), line(middleUs + marginUs + windowUs)]
    const first = (us: number) => at(now, us + marginUs) + before * (1 - us / windowUs)
    const second = (us: number) =>
      (at(now, us + marginUs) * us) / windowUs + at(both, us + marginUs + windowUs) * (1 - us / windowUs)
    // The slope of the second is 0 there.
    const bend = 2 * (slope(both) - slope(now))
    const rise = at(now, marginUs) - at(both, marginUs + windowUs) + slope(both) * windowUs
    const topUs = bend > 0 ? Math.min(Math.max(rise / bend, fromUs), toUs) : toUs
    const most = (of: (us: number) => number, all: readonly number[]) => Math.max(...all.map(of))
    return Math.min(most(first, [fromUs, toUs]), most(second, [fromUs, topUs, toUs])) - units + 1
  })
  return Math.max(0, Math.ceil(Math.max(...sums) - tolerance) - 1)
}

function refusedByLog(steps: Steps, marginUs: number, { units, windowUs }: ParsedRate): number {
  return Math.max(0, mostIn(steps, windowUs + marginUs) - units)
}

/** Returns why the vendor's stated limit could be exceeded; undefined: it could not, or none was stated. */
export function vendorWarning(limit: Seen): string | undefined {
  const { vendor } = limit
  if (vendor === undefined || vendor === null) return undefined
  const views = vendorViews(limit)
  if (views.length === 0) return `the vendor allows ${vendor.rate}, and no rate of this limit keeps to that`
  const [first] = views
  if (vendor.algorithm === undefined) {
    if ((first?.worst ?? 0) <= vendor.units) return undefined
    return `the vendor allows ${vendor.rate}, and up to ${first?.worst} may arrive in such a window`
  }
  if ((first?.refused ?? 0) === 0) return undefined
  const most = first?.refused === Infinity ? 'any number' : `up to ${first?.refused} at a time`
  return `the vendor allows ${vendor.rate} (${wayInWords(first as VendorView)}), and may refuse ${most}`
}

/** Returns a way of counting in words: `bucket of 10`. */
export function wayInWords({ algorithm, burst }: Pick<VendorView, 'algorithm' | 'burst'>): string {
  return burst === undefined ? algorithm : `${algorithm} of ${burst}`
}

/** All that a limit guarantees, for people and programs. */
export interface LimitGuarantee {
  /** The most that the vendor can see, in one sentence. */
  sentence: string
  rules: Guarantee[]
  vendors: VendorView[]
  /** Why the limit that the vendor states could be exceeded. */
  warning?: string
}

/** Returns what a limit guarantees; the library and the command line both take it from here. */
export function guaranteeOf(limit: Seen): LimitGuarantee {
  const rules = guarantees(limit)
  const vendors = vendorViews(limit)
  const warning = vendorWarning(limit)
  // Without a noun, because only code knows what a unit is: a call, a token, a point.
  const units = (n: number) => amount(n, limit.currency)
  const most = rules.map((rule) => {
    if (!countsUnits(rule)) return `${rule.worst} at one time`
    if (rule.kind !== 'quota') return `${units(rule.worst)} in any window of ${rule.rate}`
    // Two periods may be used up next to each other.
    return `${units(rule.burst)} in each period of quota ${rule.rate} (${units(rule.worst)} in a span as long that reaches into two)`
  })
  const margin = rules.find(({ marginMs }) => marginMs > 0)
  const way =
    margin === undefined
      ? ''
      : `, as long as the way from decision to arrival varies by no more than ${margin.marginMs} ms`
  const sentence = `the vendor sees at most ${most.join(', and ')}${way}${refusalsInWords(vendors)}`
  return { sentence, rules, vendors, ...(warning === undefined ? {} : { warning }) }
}

/** Returns the refusals in words if the vendor has one limit; for several, only the table lists them. */
function refusalsInWords(views: readonly VendorView[]): string {
  if (views.length === 0 || new Set(views.map(({ limit }) => limit)).size > 1) return ''
  const safe = views.filter(({ refused }) => refused === 0).map(wayInWords)
  const unsafe = views
    .filter(({ refused }) => refused > 0)
    .map((view) => `${view.refused === Infinity ? 'any number' : `up to ${view.refused}`} by ${wayInWords(view)}`)
  const none = safe.length === 0 ? [] : [`none by ${safe.join(', ')}`]
  return `; a vendor of ${views[0]?.limit} refuses ${[...none, ...unsafe].join(', ')}`
}

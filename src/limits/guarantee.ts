/**
 * Computes what a vendor can see at worst. A level bucket (capacity B, rate r) grants at most B + ceil(L * r) - 1 units in any
 * half-open span L, a window at most its units in a span of its 60 parts. Arrivals in a window of W were granted in a
 * span of W + J, where J is the life of a grant plus the variation of the way; so the level lets at most
 * B + ceil((W + J) * r) - 1 arrive in any half-open W, and the window, whose parts add up to W + J, its units. A level with
 * a pace (rate p, slack E) grants that or ceil((L + E) * p), whichever is more: up to W + J the level's, then the pace's. A quota
 * lets its units arrive in each period of the calendar, and so twice as many in a span of the same length that reaches
 * into two periods.
 */
import { figure } from '../core/figures.ts'
import { amount } from '../core/money.ts'
import type { Limit } from './limit.ts'
import { calendarInWords, type Rule, windowParts, withPaces } from './rule.ts'
import type { QuotaRule } from './quota.ts'

/** The guarantee of one rule, in numbers and in words for people. */
export interface Guarantee {
  kind: Rule['kind']
  /** As it was written; for a concurrency its number. */
  rate: string
  /** Most arrivals in any half-open window of the rate's length; for a quota twice what one period of the calendar holds. */
  worst: number
  /** Units granted per second in the long run; Infinity for a concurrency. */
  perSecond: number
  /** `perSecond` over the nominal rate: below 1 by what the margin and the small bucket, or the parts of a window, cost. */
  utilisation: number
  /** Units that may be granted at once. */
  burst: number
  /** The margin J in ms: the life of a grant plus `transit`. */
  marginMs: number
  /** One sentence for people. */
  text: string
}

/** Returns the guarantee of each rule of a limit; a rate and its pace are one. */
export function guarantees(limit: Pick<Limit, 'rules' | 'grantUs' | 'transitUs'> & { currency?: string | undefined }) {
  const marginUs = limit.grantUs + limit.transitUs
  const inUnits = (units: number) => amount(units, limit.currency)
  return withPaces(limit.rules).map(({ rule, pace }): Guarantee => {
    if (rule.quota !== undefined) return perPeriod(rule, rule.quota, inUnits)
    return rule.kind === 'concurrency' ? places(rule) : guarantee(rule, pace, marginUs, inUnits)
  })
}

/** Formats units for people: as money, if the limit has a currency. */
type InUnits = (units: number) => string

function perPeriod(rule: Rule, { unit, zone, marginUs }: QuotaRule, inUnits: InUnits): Guarantee {
  const { kind, rate, units } = rule
  const marginMs = marginUs / 1_000
  const perSecond = (units * 1e6) / meanUs[unit]
  return {
    kind,
    rate,
    worst: 2 * units,
    perSecond,
    utilisation: 1,
    burst: units,
    marginMs,
    text: `${rate}: at most ${inUnits(units)} in any ${unit} of ${zone}${calendarInWords(rule).replace(/^.*?(, .*)?\)$/, '$1')}, if the vendor's clock and the way there differ by less than ${marginMs} ms; up to ${inUnits(2 * units)} in a span of that length that reaches into two`,
  }
}

const dayUs = 86_400_000_000
/** Mean lengths: months differ, and so do days on which clocks are set. */
const meanUs = {
  minute: dayUs / 1_440,
  hour: dayUs / 24,
  day: dayUs,
  week: 7 * dayUs,
  month: (dayUs * 146_097) / 4_800,
}

function places(rule: Rule): Guarantee {
  const text = `at most ${rule.units} at one time, as the store counts`
  return {
    kind: rule.kind,
    rate: rule.rate,
    worst: rule.units,
    perSecond: Infinity,
    utilisation: 1,
    burst: rule.units,
    marginMs: 0,
    text,
  }
}

/**
 * A rule's grants as a step function: at most `burst` at once, and `units` more every `weight / drain` microseconds. So a
 * half-open span L holds at most burst + units * (ceil(L * drain / weight) - 1), a closed one
 * burst + units * floor(L * drain / weight).
 */
export interface Steps extends Line {
  /** The line of its pace, if that allows more: for spans longer than the window. */
  pace?: Line
}

/** Steps of one length and height. */
export interface Line {
  burst: number
  units: number
  drain: number
  weight: number
  /** Time by which spans count as longer, in microseconds. */
  slackUs: number
}

/** Returns a rule as steps; undefined for a concurrency, which bounds no number of requests. */
export function stepsOf(rule: Rule, pace?: Rule): Steps | undefined {
  const { capacity: burst, drain, weight, windowUs, partUs } = rule
  switch (rule.kind) {
    case 'rate':
    case 'pace': {
      const steps = { burst, units: 1, drain, weight, slackUs: 0 }
      if (pace === undefined) return steps
      return { ...steps, pace: { burst: 1, units: 1, drain: pace.drain, weight: pace.weight, slackUs: pace.partUs } }
    }
    case 'window':
      return { burst, units: burst, drain: 1, weight: windowParts * partUs, slackUs: 0 }
    case 'quota':
      // A span may reach into two periods; the charge includes their margins.
      return { burst: 2 * burst, units: burst, drain: 1, weight: windowUs, slackUs: 0 }
    case 'concurrency':
      return undefined
  }
  return rule.kind satisfies never
}

/**
 * Returns how many steps follow the first grants within a span of this length, in microseconds; the span is half-open
 * unless `isClosed`. Exact, because a step may begin at a fraction of a microsecond.
 */
export function stepsIn({ drain, weight, slackUs }: Line, spanUs: number, isClosed = false): number {
  const [span, every] = [BigInt(spanUs + slackUs) * BigInt(drain), BigInt(weight)]
  return isClosed ? Number(span / every) : ceilDiv(span, every) - 1
}

/** Returns the most units in a half-open span of this length, in microseconds. */
export function mostIn(steps: Steps, spanUs: number): number {
  const most = (line: Line) => line.burst + line.units * stepsIn(line, spanUs)
  return Math.max(most(steps), steps.pace === undefined ? 0 : most(steps.pace))
}

function guarantee(rule: Rule, pace: Rule | undefined, marginUs: number, inUnits: InUnits): Guarantee {
  const isWindow = rule.kind === 'window'
  const steady = pace ?? rule
  const worst = mostIn(stepsOf(rule, pace) as Steps, rule.windowUs + marginUs)
  const perSecond = isWindow ? (rule.units * 1e6) / rule.spanUs : (steady.drain * 1e6) / steady.weight
  const utilisation = perSecond / ((rule.units * 1e6) / rule.windowUs)
  const marginMs = marginUs / 1_000
  const verdict =
    worst <= rule.units
      ? `at most ${inUnits(rule.units)}`
      : `up to ${inUnits(worst)}, which is over ${inUnits(rule.units)},`
  const every = windowInWords(rule.rate)
  const lasting = utilisation * rule.units
  return {
    kind: rule.kind,
    rate: rule.rate,
    worst,
    perSecond,
    utilisation,
    burst: rule.capacity,
    marginMs,
    text: `${rule.rate}: ${verdict} in any ${every}; sustains ${inUnits(1) === '1' ? figure(lasting) : inUnits(Math.floor(lasting))}/${every}, bursts of ${inUnits(rule.capacity)}; requests may take ${marginMs} ms to arrive`,
  }
}

/** Formats the window of a rate: `minute`, `10s`. */
function windowInWords(rate: string): string {
  const window = rate.replace(/^.*\//, '')
  const words = { s: 'second', sec: 'second', m: 'minute', min: 'minute', h: 'hour', d: 'day' }
  return words[window as keyof typeof words] ?? window
}

/** Divides and rounds up; BigInt, because a span times a rate may pass 2^53. */
function ceilDiv(a: bigint, b: bigint): number {
  return Number((a + b - 1n) / b)
}

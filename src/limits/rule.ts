/** One rule of a limit, in the integers that the store computes with. */
import { UsageError } from '../core/errors.ts'
import { unitsOf } from '../core/money.ts'
import type { ParsedRate } from '../core/rate.ts'
import { drains, type Kind } from './kind.ts'
import type { QuotaRule } from './quota.ts'

/** A rule that a bucket has to keep to; `decide.ts` has the arithmetic. */
export interface Rule {
  kind: Kind
  /** As it was written; for a concurrency its number. */
  rate: string
  units: number
  /** The vendor's window; for a quota its shortest period; 0: none. */
  windowUs: number
  /** How much debt drains in a microsecond; a concurrency does not drain. */
  drain: number
  /** Debt that one unit adds. */
  weight: number
  /** Capacity in units; of a pace that of its rate. */
  capacity: number
  /** Length of a window's parts, in microseconds; of a pace how late its units may be used without a loss; else 0. */
  partUs: number
  /** How far back grants matter, in microseconds: the window and its margin, or until a full bucket has drained. */
  spanUs: number
  /** In a rule that holds beside those of newer code: whether it is a classic token bucket. Left out: as its limit is. */
  classic?: boolean
  /** The calendar of a quota. */
  quota?: QuotaRule
}

/** A rate as it was parsed, and as it was written. */
export type Written = ParsedRate & { rate: string }

/** Number of parts that a window is counted in, besides the one that is under way. */
export const windowParts = 60

/** Number of its spans for which a changed rate looks back: as far as `proof.ts` checks it. */
const rateSpans = 3

/** Returns for how many microseconds grants matter when a definition is changed to this rule. */
export function lookbackUs(rule: Rule): number {
  return drains(rule) ? rateSpans * rule.spanUs : rule.spanUs
}

/** Returns the error for a bad limit. */
export function badLimit(name: string, why: string): UsageError {
  return new UsageError('SLUICE_BAD_LIMIT', `limit "${name}": ${why}`)
}

/** Returns the currency of all of a limit's amounts; undefined: they are not money. @throws UsageError SLUICE_BAD_LIMIT */
export function currencyOf(name: string, given: readonly string[]): string | undefined {
  const [first, ...others] = new Set(given.map((one) => unitsOf(one).currency))
  if (others.length === 0) return first
  throw badLimit(name, `${given.join(' and ')} count different things; give all of them in one currency, or none`)
}

/** Returns a window rule: never more than its units in any half-open span of 60 parts, which are the window and its margin. */
export function windowRule(rule: Written, marginUs: number): Rule {
  const partUs = Math.ceil((rule.windowUs + marginUs) / windowParts)
  return {
    kind: 'window',
    ...rule,
    drain: 1,
    weight: 1,
    capacity: rule.units,
    partUs,
    spanUs: partUs * (windowParts + 1),
  }
}

/** Returns a concurrency rule: charged at the claim, released when the attempt ends. */
export function concurrencyRule(units: number): Rule {
  return {
    kind: 'concurrency',
    rate: `${units}`,
    units,
    windowUs: 0,
    drain: 0,
    weight: 1,
    capacity: units,
    partUs: 0,
    spanUs: 0,
  }
}

/**
 * Returns a level rule (token bucket, GCRA). Without `burst` it is the safe one: B = max(1, floor(N/10)), refilled at
 * (N - B + 1) / W' where W' = W + J, so that any half-open window of W at the vendor holds at most N arrivals
 * (limits/guarantee.ts).
 * @throws UsageError SLUICE_BAD_LIMIT
 */
export function levelRule(name: string, rule: Written, burst: number | undefined, marginUs: number): Rule {
  const capacity = burst ?? Math.max(1, Math.floor(rule.units / 10))
  const refill = burst === undefined ? rule.units - capacity + 1 : rule.units
  const windowUs = burst === undefined ? rule.windowUs + marginUs : rule.windowUs
  const shared = gcd(refill, windowUs)
  const drain = refill / shared
  const weight = windowUs / shared
  if (!Number.isSafeInteger(capacity * weight)) {
    const what = `${rule.rate} with a burst of ${capacity}`
    throw badLimit(
      name,
      `${what} is beyond exact arithmetic (2^53); choose a smaller burst, a rounder rate, or a \`window\`, which counts exactly`,
    )
  }
  // A full bucket owes until it has drained completely.
  const spanUs = Math.max(rule.windowUs + marginUs, Math.ceil((capacity * weight) / drain))
  return { kind: 'rate', ...rule, drain, weight, capacity, partUs: 0, spanUs }
}

const slackMaxUs = 100_000

/**
 * Returns the rules of a rate without `burst`: the small bucket, and behind it its pace. The pace has no room of its
 * own but makes room in the bucket, so that in the long run N / (W' + E) are granted, which is more than the bucket's
 * refill. E, a sixtieth of the window and at most 100 ms, is how late a unit may be used without a loss. At most N
 * still arrive in any W (docs/margins.md, "The pace"). A bucket of one unit gets no pace, because it is as fast
 * without one.
 * @throws UsageError SLUICE_BAD_LIMIT
 */
export function pacedRules(name: string, rule: Written, marginUs: number): Rule[] {
  const bucket = levelRule(name, rule, undefined, marginUs)
  const partUs = Math.min(slackMaxUs, Math.floor(rule.windowUs / 60))
  const windowUs = rule.windowUs + marginUs + partUs
  const shared = gcd(rule.units, windowUs)
  const [drain, weight] = [rule.units / shared, windowUs / shared]
  const isExact = Number.isSafeInteger(bucket.capacity * weight) && Number.isSafeInteger(weight + drain * partUs)
  if (bucket.capacity === 1 || !isExact) return [bucket]
  return [bucket, { ...bucket, kind: 'pace', drain, weight, partUs }]
}

/** True if a rule counts grants in parts of time. */
export const isWindow = (rule: Rule): boolean => rule.kind === 'window'

/** True if a rule is the pace of the rate before it. */
export const isPace = (rule: Rule): boolean => rule.kind === 'pace'

/** True if a rule counts running jobs. */
export const isConcurrency = (rule: Rule): boolean => rule.kind === 'concurrency'

/** Returns what belongs to each rule that people see: a rate, and its pace if it has one, are one rule for them. */
export function withPaces(rules: readonly Rule[]): { rule: Rule; i: number; pace: Rule | undefined }[] {
  return rules.flatMap((rule, i) => (rule.kind === 'pace' ? [] : [{ rule, i, pace: paceOf(rules, i) }]))
}

/** Returns the pace of the rule at `i`; undefined: it has none. */
export function paceOf(rules: readonly Rule[], i: number): Rule | undefined {
  const next = rules[i + 1]
  return rules[i]?.kind === 'rate' && next?.kind === 'pace' ? next : undefined
}

/** Returns the most debt that a pace can have after a grant: that of one unit, and of what drains while it may be late. */
export function paceFull({ drain, weight, partUs }: Rule): number {
  return weight + drain * partUs
}

export function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b)
}

/** Returns the calendar of a quota in words. */
export function calendarInWords({ quota }: Rule): string {
  if (quota === undefined) return ''
  return ` (${quota.zone}${quota.anchorUs === null ? '' : `, counted from ${new Date(quota.anchorUs / 1_000).toISOString()}`})`
}

/** One rule of a limit, in the integers that the store computes with. */
import { UsageError } from '../core/errors.ts'
import type { ParsedRate } from '../core/rate.ts'
import type { QuotaRule } from './quota.ts'

/** What is asked of a bucket; `decide.ts` says how. */
export interface Rule {
  kind: 'rate' | 'window' | 'quota' | 'concurrency'
  /** As it was written; of concurrency the number. */
  rate: string
  units: number
  /** The vendor's window, of a quota its shortest period; 0: none. */
  windowUs: number
  /** So much a microsecond drains; of concurrency nothing does. */
  drain: number
  /** So much a unit weighs. */
  weight: number
  /** Capacity in units. */
  room: number
  /** Length of a window's parts. */
  slotUs: number
  /** How far back grants matter: the window and its margin, or until a full bucket has drained. */
  spanUs: number
  /** Of a quota: its calendar. */
  quota?: QuotaRule
}

/** A rate, and how it was written. */
export type Written = ParsedRate & { rate: string }

/** A window is counted in so many parts, and the one that is under way. */
export const windowParts = 60

/** What is wrong with a limit. */
export function badLimit(name: string, why: string): UsageError {
  return new UsageError('SLUICE_BAD_LIMIT', `limit "${name}": ${why}`)
}

/** A window rule: never more than its units in any half-open span of 60 parts, and those are the window and its margin. */
export function sliding(rule: Written, marginUs: number): Rule {
  const slotUs = Math.ceil((rule.windowUs + marginUs) / windowParts)
  return { kind: 'window', ...rule, drain: 1, weight: 1, room: rule.units, slotUs, spanUs: slotUs * (windowParts + 1) }
}

/** A concurrency rule: counted at the claim, released when the attempt ends. */
export function atOnce(units: number): Rule {
  return {
    kind: 'concurrency',
    rate: `${units}`,
    units,
    windowUs: 0,
    drain: 0,
    weight: 1,
    room: units,
    slotUs: 0,
    spanUs: 0,
  }
}

/**
 * A level rule (token bucket, GCRA). The safe one: B = max(1, floor(N/10)), refilled at (N - B + 1) / W' where
 * W' = W + J, so that any half-open window of W at the vendor holds at most N arrivals (limits/guarantee.ts).
 */
export function level(name: string, rule: Written, burst: number | undefined, marginUs: number): Rule {
  const room = burst ?? Math.max(1, Math.floor(rule.units / 10))
  const refill = burst === undefined ? rule.units - room + 1 : rule.units
  const windowUs = burst === undefined ? rule.windowUs + marginUs : rule.windowUs
  const shared = gcd(refill, windowUs)
  const drain = refill / shared
  const weight = windowUs / shared
  if (!Number.isSafeInteger(room * weight)) {
    const what = `${rule.rate} with a burst of ${room}`
    throw badLimit(name, `${what} is beyond exact arithmetic (2^53); choose a smaller burst or a rounder rate`)
  }
  // A full bucket owes until all of it has drained.
  const spanUs = Math.max(rule.windowUs + marginUs, Math.ceil((room * weight) / drain))
  return { kind: 'rate', ...rule, drain, weight, room, slotUs: 0, spanUs }
}

export function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b)
}

/** The calendar of a quota, in words. */
export function cycle({ quota }: Rule): string {
  if (quota === undefined) return ''
  return ` (${quota.zone}${quota.anchorUs === null ? '' : `, counted from ${new Date(quota.anchorUs / 1_000).toISOString()}`})`
}

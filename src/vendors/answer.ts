/** The parts of a vendor's answer that are read, and the result. */
import { present } from '../core/fields.ts'

/** A response, as far as it can be read: any `fetch` response fits. */
export interface Answer {
  readonly status: number
  readonly headers: { get(name: string): string | null }
  /** The parsed body; undefined if it was not read, or is not JSON. */
  readonly body?: unknown
}

/** The unit of a count; `other`: something that is none of these. */
export const countUnits = [
  'requests',
  'tokens',
  'input-tokens',
  'output-tokens',
  'points',
  'content-bytes',
  'concurrent-requests',
  'other',
] as const

/** See {@link countUnits}. */
export type CountUnit = (typeof countUnits)[number]

/** One of the vendor's counts, as it stood when the answer was sent. Figures that the vendor did not state are absent. */
export interface Count {
  /** The vendor's name of the limit that it counts for. */
  readonly policy?: string
  readonly unit: CountUnit
  /** Most units in a window; whole, at least 1. */
  readonly limit?: number
  /** Units that are left; whole, 0 to `limit`. */
  readonly remaining?: number
  /** Time until the count begins anew, in whole ms from the answer, 0 to the cap. */
  readonly resetMs?: number
  /** Length of the window, in whole ms, at least 1. */
  readonly windowMs?: number
  /** True if all units come back together at the reset; absent: they may come back one by one. */
  readonly isFixed?: boolean
}

/** The vendor refused for now. */
export interface Refusal {
  /** How long to wait, in whole ms from the answer, from 1 s to the cap; absent: the vendor states no time. */
  readonly waitMs?: number
  /** The vendor's name of the limit that refused, if it can be known. */
  readonly policy?: string
  /** The status, and why, in a few words. */
  readonly reason: string
}

/** The statements of an answer about the vendor's limits. */
export interface Reading {
  readonly refused?: Refusal
  readonly counts: readonly Count[]
  /** The credential was not accepted: `rejected` (401), or not for this request (403 that is no refusal for now). */
  readonly credential?: 'rejected' | 'forbidden'
}

const textMax = 100

/** Returns a short text of printable ASCII, which may be logged; undefined for anything else. */
export function shortText(given: unknown): string | undefined {
  if (typeof given !== 'string') return undefined
  const text = given.trim()
  return text.length <= textMax && /^[ -~]+$/.test(text) ? text : undefined
}

function wholeIn(value: number | undefined, min: number, max = Number.MAX_SAFE_INTEGER): number | undefined {
  if (value === undefined || !(value >= min && value <= Number.MAX_SAFE_INTEGER)) return undefined
  // The sum makes a zero of a negative zero.
  return Math.min(Math.floor(value), max) + 0
}

/** Figures as they were read. */
export type Figures = { readonly [Field in keyof Count]: Count[Field] | undefined }

/**
 * Returns a count whose figures can all be used: those that cannot are left out, and never more remains than the limit.
 * Undefined if nothing is left.
 */
export function cleanCount({ policy, unit = 'other', ...given }: Partial<Figures>): Count | undefined {
  const limit = wholeIn(given.limit, 1)
  const remaining = wholeIn(given.remaining, 0, limit)
  const resetMs = wholeIn(given.resetMs, 0)
  if (limit === undefined && remaining === undefined && resetMs === undefined) return undefined
  const windowMs = wholeIn(given.windowMs, 1)
  const isFixed = given.isFixed === true ? true : undefined
  return present({ policy, unit, limit, remaining, resetMs, windowMs, isFixed })
}

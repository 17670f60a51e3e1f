/** The statements of a definition about its vendor: the vendor's own limit, to compare ours with it, and how its answers are read. */
import { inspect } from 'node:util'
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { type ParsedRate, parseRate, type Rate } from '../core/rate.ts'
import { profiles, type VendorName } from '../vendors/profiles.ts'
import type { Answers } from '../vendors/reader.ts'

/** All known ways of counting. */
export const algorithms = ['fixed window', 'sliding log', 'sliding counter', 'bucket'] as const

/** How a vendor counts. `bucket`: a token bucket, also called leaky bucket or GCRA. */
export type VendorAlgorithm = (typeof algorithms)[number]

/** The properties of a vendor; see the fields. */
export interface VendorLimit {
  /** The limit that it states. */
  limit?: Rate | undefined
  /** How the vendor counts; default: not known, so all ways are shown. Needs `limit`. */
  algorithm?: VendorAlgorithm | undefined
  /** Capacity of a `bucket`; whole, at least 1; default the rate's units. */
  burst?: number | undefined
  /**
   * How its answers are read: the name of a profile (docs/vendors.md), or a function of yours. Default: the headers that
   * many vendors share.
   */
  answers?: Answers | undefined
}

/** A vendor's limit as it was parsed. */
export interface VendorRate extends ParsedRate {
  rate: Rate
  algorithm?: VendorAlgorithm
  burst?: number
}

function isName(given: unknown): given is VendorName {
  return typeof given === 'string' && Object.hasOwn(profiles, given)
}

/**
 * Parses what a definition states about its vendor.
 * @returns `vendor`: the limit that it states; `answers`: how its answers are read; undefined: not stated
 * @throws UsageError SLUICE_BAD_LIMIT, SLUICE_BAD_RATE
 */
export function vendorOf(
  name: string,
  given: VendorName | Rate | VendorLimit | undefined,
): { vendor: VendorRate | undefined; answers: Answers | undefined } {
  if (given === undefined) return { vendor: undefined, answers: undefined }
  const bad = (why: string) => new UsageError('SLUICE_BAD_LIMIT', `limit "${name}": ${why}`)
  const unknown = (what: unknown) =>
    bad(
      `there is no vendor ${inspect(what)}; name one of ${Object.keys(profiles).join(', ')}, or state a rate such as '100/min'`,
    )
  if (typeof given === 'string') {
    if (isName(given)) return { vendor: undefined, answers: given }
    if (!given.includes('/')) throw unknown(given)
    return { vendor: { rate: given, ...parseRate(given) }, answers: undefined }
  }
  checkFields('SLUICE_BAD_LIMIT', `vendor of limit "${name}"`, given, ['limit', 'algorithm', 'burst', 'answers'])
  const { limit: rate, algorithm, burst, answers } = given
  if (answers !== undefined && typeof answers !== 'function' && !isName(answers)) throw unknown(answers)
  if (algorithm !== undefined && !algorithms.includes(algorithm))
    throw bad(`its vendor counts by "${String(algorithm)}"; use one of ${algorithms.join(', ')}, or leave it out`)
  if (burst !== undefined && !(Number.isSafeInteger(burst) && burst >= 1))
    throw bad(`the burst of its vendor is ${burst}; it must be a whole number of at least 1`)
  if (burst !== undefined && algorithm !== 'bucket') throw bad('the burst of its vendor is the capacity of a `bucket`')
  if (rate === undefined) {
    if (algorithm !== undefined || answers === undefined)
      throw bad('what its vendor allows is missing; give it `limit`, or a profile or function as `answers`')
    return { vendor: undefined, answers }
  }
  const of = { ...(algorithm === undefined ? {} : { algorithm }), ...(burst === undefined ? {} : { burst }) }
  return { vendor: { rate, ...parseRate(rate), ...of }, answers }
}

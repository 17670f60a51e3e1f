/** What a vendor states about its limits; a definition may repeat it, so that it can be compared with ours. */
import { UsageError } from '../core/errors.ts'
import { type ParsedRate, parseRate, type Rate } from '../core/rate.ts'

/** All known ways of counting. */
export const algorithms = ['fixed window', 'sliding log', 'sliding counter', 'bucket'] as const

/** How a vendor counts. `bucket`: a token bucket, also called leaky bucket or GCRA. */
export type VendorAlgorithm = (typeof algorithms)[number]

/** What a vendor states that it allows; see the fields. */
export interface VendorLimit {
  limit: Rate
  /** How the vendor counts; default: not known, so all ways are shown. */
  algorithm?: VendorAlgorithm
  /** Capacity of a `bucket`; whole, at least 1; default the rate's units. */
  burst?: number
}

/** A vendor's limit as it was parsed. */
export interface VendorRate extends ParsedRate {
  rate: Rate
  algorithm?: VendorAlgorithm
  burst?: number
}

/** Parses what a definition states about its vendor. @throws UsageError SLUICE_BAD_LIMIT, SLUICE_BAD_RATE */
export function vendorOf(name: string, given: Rate | VendorLimit): VendorRate {
  const { limit: rate, algorithm, burst } = typeof given === 'string' ? { limit: given } : given
  const bad = (why: string) => new UsageError('SLUICE_BAD_LIMIT', `limit "${name}": ${why}`)
  if (algorithm !== undefined && !algorithms.includes(algorithm))
    throw bad(`its vendor counts by "${String(algorithm)}"; use one of ${algorithms.join(', ')}, or leave it out`)
  if (burst !== undefined && !(Number.isSafeInteger(burst) && burst >= 1))
    throw bad(`the burst of its vendor is ${burst}; it must be a whole number of at least 1`)
  if (burst !== undefined && algorithm !== 'bucket') throw bad('the burst of its vendor is the capacity of a `bucket`')
  return {
    rate,
    ...parseRate(rate),
    ...(algorithm === undefined ? {} : { algorithm }),
    ...(burst === undefined ? {} : { burst }),
  }
}

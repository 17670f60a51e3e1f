/**
 * When a vendor's failures open the circuit of a bucket. Pure. `limits/ledger/count_failures.sql` counts them, and
 * `limits/ledger/trial_interval.sql` computes how far apart the trials are; `test/limits/circuit.ts` specifies both.
 */
import { inspect } from 'node:util'
import { badLimit } from './rule.ts'

/** Why the vendor's answers hold a bucket: it refuses requests, it rejects the credential, or it is down. */
export type Cause = 'refused' | 'credential' | 'down'

/** Failures further apart than this are not in a row, in microseconds. */
export const apartUs = { down: 120_000_000, credential: 3_600_000_000 } as const

/** Failures in a row are counted up to this number. */
export const countMax = 1_000

/** How many failures in a row, and of how many. */
export interface Count {
  readonly n: number
  readonly who: number
}

/** The failures in a row that open a circuit where no number is given, and the jobs that a rejected credential takes. */
export const circuitDefault = 5
const jobsLeast = { down: 2, credential: 3 } as const
const keysLeast = 3

/**
 * Returns what a failure opens: nothing yet, the buckets of the request's key, or what keys share too.
 * @param own failures of the key, and the jobs that they are of
 * @param wide failures of all keys, and the keys that they are of; undefined: the request has no key of its own
 * @param least how many failures open the circuit of a vendor that is down
 */
export function opening(
  cause: 'down' | 'credential',
  own: Count,
  wide: Count | undefined,
  least: number,
): 'none' | 'own' | 'all' {
  const jobs = jobsLeast[cause]
  if (cause === 'credential') return own.who >= jobs ? 'own' : 'none'
  const isWide = wide !== undefined && wide.n >= least && wide.who >= jobs
  if (isWide && wide.who >= keysLeast) return 'all'
  return isWide || (own.n >= least && own.who >= jobs) ? 'own' : 'none'
}

/**
 * Returns the failures in a row that open the circuit of a limit; 0: never.
 * @throws UsageError SLUICE_BAD_LIMIT
 */
export function checkCircuit(name: string, given: number | boolean = false): number {
  if (typeof given === 'boolean') return given ? circuitDefault : 0
  if (Number.isInteger(given) && given >= 2 && given <= countMax) return given
  throw badLimit(name, `circuit is ${inspect(given)}; it is true, false, or a whole number from 2 to ${countMax}`)
}

/**
 * When a vendor's failures open the circuit of a bucket, and how far apart its trials are. Pure; the specification of
 * limits/ledger/count_failures.sql and limits/ledger/trial_distance.sql, which tests compare with it.
 */
import { inspect } from 'node:util'
import { badLimit } from './rule.ts'

/** Why the vendor's answers hold a bucket: it refuses requests, it rejects the credential, or it is down. */
export type Cause = 'refused' | 'credential' | 'down'

/** Failures in a row of one scope: the buckets of a key, or all keys of the limits. */
export interface Failures {
  /** When the newest was counted, in microseconds of the limiter's clock. */
  readonly atUs: number
  /** How many in a row; at most 1,000. */
  readonly n: number
  /** The jobs, or keys, that they are of; at most 8 are kept. */
  readonly who: readonly string[]
}

/** Failures further apart than this are not in a row, in microseconds. */
export const apartUs = { down: 120_000_000, credential: 3_600_000_000 } as const

const countMax = 1_000
const whoMax = 8

/**
 * Returns the failures in a row after one more.
 * @param fineUs when the newest request of the scope was served, as far as the reporting process knows
 */
export function counted(
  before: Failures | undefined,
  who: string,
  nowUs: number,
  fineUs: number | undefined,
  cause: 'down' | 'credential',
): Failures {
  const isFirst = before === undefined || before.atUs < Math.max(fineUs ?? 0, nowUs - apartUs[cause])
  if (isFirst) return { atUs: nowUs, n: 1, who: [who] }
  const isKnown = before.who.includes(who) || before.who.length >= whoMax
  const all = isKnown ? before.who : [...before.who, who]
  return { atUs: Math.max(before.atUs, nowUs), n: Math.min(countMax, before.n + 1), who: all }
}

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
 * Returns how long a bucket is held after the n-th bad answer in a row, if the vendor states no time: a second (a
 * credential: a minute) that doubles up to 3 s, and grows on with the outage as its twentieth part. So a vendor that is
 * back is noticed soon, and one that is gone for long is left alone. Each bucket adds up to a quarter, so that the
 * trials of a vendor's buckets do not coincide. A refusal adds nothing, because it holds few buckets.
 * @param ageUs since the first of them
 * @param mostUs the longest hold of a refusal: the span of the limit's shortest rule
 */
export function distanceUs(cause: Cause, bucket: bigint, n: number, ageUs: number, mostUs: number): number {
  const second = cause === 'credential' ? 60_000_000 : 1_000_000
  const unit = cause === 'refused' ? second : second + Number(bucket & 255n) * (second / 1_000)
  const most = { refused: mostUs, down: 60_000_000, credential: 900_000_000 }[cause]
  return Math.min(most, unit * 2 ** Math.min(n - 1, 10), Math.max(3 * unit, Math.floor(ageUs / 20)))
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

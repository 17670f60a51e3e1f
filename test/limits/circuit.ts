/**
 * Counts a vendor's failures, and computes how far apart the trials of a bucket are. Pure. This is the specification of
 * `src/limits/ledger/count_failures.sql` and `src/limits/ledger/trial_interval.sql`.
 */
import { apartUs, type Cause, countMax } from '../../src/limits/circuit.ts'

/** Failures in a row of one scope: the buckets of a key, or all keys of the limits. */
export interface Failures {
  /** When the newest was counted, in microseconds of the limiter's clock. */
  readonly atUs: number
  /** How many in a row; at most 1,000. */
  readonly n: number
  /** The jobs, or keys, that they are of; at most 8 are kept. */
  readonly who: readonly string[]
}

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

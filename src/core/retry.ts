/**
 * Computes when a failed attempt is retried: exponential backoff with full jitter. The n-th retry waits a uniformly
 * random time between 0 and min(maxMs, baseMs * 2^(n-1)), so that jobs that failed together are not retried together.
 *
 * | retry | longest wait (base 1 s, max 1 h) |
 * |---|---|
 * | 1 | 1 s |
 * | 2 | 2 s |
 * | 3 | 4 s |
 * | 8 | 128 s |
 * | 13 and later | 1 h |
 */
import { UsageError } from './errors.ts'
import { type Duration, durationMs } from './rate.ts'

/** Retry options of a task. */
export interface RetryOptions {
  /** Attempts in all, the first included; 1 to 1000, default 5. Attempts that never called the handler do not count. */
  attempts?: number
  /** Upper end of the first wait; default 1 s, at most 366 days. */
  base?: Duration
  /** Upper end of every wait; default 1 h, at most 366 days. */
  max?: Duration
}

/** Retry options with defaults filled in and checked. */
export interface RetryPolicy {
  attempts: number
  baseMs: number
  maxMs: number
}

/** The longest wait between two attempts. */
export const waitMaxMs = 366 * 86_400_000

/**
 * Fills in the defaults and checks the options.
 * @throws UsageError SLUICE_BAD_RETRY when attempts is not a whole number from 1 to 1000, or a wait is over 366 days
 */
export function retryPolicy(options: RetryOptions = {}): RetryPolicy {
  const attempts = options.attempts ?? 5
  if (!Number.isInteger(attempts) || attempts < 1 || attempts > 1000) {
    throw new UsageError('SLUICE_BAD_RETRY', `retry.attempts is ${attempts}; it must be a whole number from 1 to 1000`)
  }
  const policy = { attempts, baseMs: durationMs(options.base ?? 1_000), maxMs: durationMs(options.max ?? 3_600_000) }
  if (Math.max(policy.baseMs, policy.maxMs) > waitMaxMs) {
    throw new UsageError('SLUICE_BAD_RETRY', 'retry.base and retry.max may be at most 366 days')
  }
  return policy
}

/**
 * Returns the wait, in ms, before a request that got no reply from the store is repeated: it doubles up to a second, and
 * half of it is random.
 * @param tries failed requests so far, from 0
 * @param random uniform in [0, 1)
 * @param firstMs upper end of the first wait, in ms
 */
export function againMs(tries: number, random: number, firstMs = 20): number {
  return Math.min(1_000, firstMs * 2 ** tries) * (0.5 + random / 2)
}

/**
 * Returns the wait before the next attempt, in whole ms.
 * @param failed attempts that have failed so far, at least 1
 * @param random uniform in [0, 1)
 */
export function delayMs(failed: number, policy: RetryPolicy, random: number): number {
  const most = Math.min(policy.maxMs, policy.baseMs * 2 ** Math.min(failed - 1, 40))
  return Math.floor(random * most)
}

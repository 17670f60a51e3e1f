/**
 * Computes when a failed attempt is retried: exponential backoff with equal jitter. The n-th retry waits
 * min(max, base * 2^(n-1)), of which one half is fixed and the other half is uniformly random. The fixed half leaves a
 * vendor that is down alone; the random half keeps jobs that failed together from being retried together.
 *
 * The formula is "Equal Jitter" of Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
 *
 * With the defaults a job survives an outage of 6 h: 24 is the least number of attempts whose shortest waits add up to
 * that. Table (base 1 s, max 1 h):
 *
 * | retry | waits | all waits so far |
 * |---|---|---|
 * | 1 | 0.5 to 1 s | 0.5 to 1 s |
 * | 2 | 1 to 2 s | 1.5 to 3 s |
 * | 5 | 8 to 16 s | 15.5 to 31 s |
 * | 8 | 64 to 128 s | 2.1 to 4.3 min |
 * | 10 | 4.3 to 8.5 min | 8.5 to 17 min |
 * | 12 | 17 to 34 min | 34 to 68 min |
 * | 13 and later | 30 to 60 min | |
 * | 23, the last | 30 to 60 min | 6.1 to 12.1 h |
 */
import { UsageError } from './errors.ts'
import { checkFields } from './fields.ts'
import { type Duration, durationMs } from './rate.ts'

/** Retry options of a task. The defaults survive an outage of 6 h. */
export interface RetryOptions {
  /** Attempts in all, the first included; 1 to 1000, default 24. Attempts that never called the handler do not count. */
  attempts?: number | undefined
  /** Longest first wait, which doubles with each retry; the shortest is half of it. Default 1 s, 0 to 366 days. */
  base?: Duration | undefined
  /**
   * Attempts that the vendor may refuse because of its own limits (429) before the job fails; they do not count as failed.
   * 1 to 1,000,000, default 1000.
   */
  maxThrottled?: number | undefined
  /** Bound of the longest wait, and twice that of the shortest. Default 1 h, 0 to 366 days. */
  max?: Duration | undefined
}

/** Retry options with defaults filled in and checked. */
export interface RetryPolicy {
  attempts: number
  maxThrottled: number
  baseMs: number
  maxMs: number
  /** The part of a wait that is random, from 0 to 1. Default a half. */
  jitter?: number
}

/** The longest wait between two attempts. */
export const waitMaxMs = 366 * 86_400_000

const retryFields = ['attempts', 'base', 'maxThrottled', 'max']

/**
 * Fills in the defaults and checks the options.
 * @throws UsageError SLUICE_BAD_RETRY when an option is unknown, attempts is not a whole number from 1 to 1000, or a wait is over
 * 366 days
 */
export function retryPolicy(options: RetryOptions = {}): RetryPolicy {
  checkFields('SLUICE_BAD_RETRY', '`retry`', options, retryFields, {
    backoff: '`base` and `max`',
    maxAttempts: '`attempts`',
  })
  const attempts = options.attempts ?? 24
  if (!Number.isInteger(attempts) || attempts < 1 || attempts > 1000) {
    throw new UsageError('SLUICE_BAD_RETRY', `retry.attempts is ${attempts}; it must be a whole number from 1 to 1000`)
  }
  const maxThrottled = options.maxThrottled ?? 1000
  if (!Number.isInteger(maxThrottled) || maxThrottled < 1 || maxThrottled > 1_000_000) {
    const text = `retry.maxThrottled is ${maxThrottled}; it must be a whole number from 1 to 1000000`
    throw new UsageError('SLUICE_BAD_RETRY', text)
  }
  const policy = {
    attempts,
    maxThrottled,
    baseMs: durationMs(options.base ?? 1_000),
    maxMs: durationMs(options.max ?? 3_600_000),
  }
  if (Math.max(policy.baseMs, policy.maxMs) > waitMaxMs) {
    throw new UsageError('SLUICE_BAD_RETRY', 'retry.base and retry.max may be at most 366 days')
  }
  return policy
}

/**
 * Returns a wait in ms: `firstMs` doubled `tries` times, `maxMs` at most.
 * @param random uniform in [0, 1)
 * @param jitter the part of the wait that is random
 */
function backoffMs(tries: number, firstMs: number, maxMs: number, random: number, jitter = 0.5): number {
  return Math.min(maxMs, firstMs * 2 ** Math.min(tries, 40)) * (1 - jitter + random * jitter)
}

/**
 * Returns the wait, in ms, before a request that got no reply, from the store or a broker, is repeated. It doubles up to a second.
 * @param tries failed requests so far, from 0
 * @param random uniform in [0, 1)
 * @param firstMs longest first wait, in ms
 */
export function retryPauseMs(tries: number, random: number, firstMs = 20): number {
  return backoffMs(tries, firstMs, 1_000, random)
}

/**
 * Returns the wait before the next attempt, in whole ms.
 * @param failed attempts that have failed so far, at least 1
 * @param random uniform in [0, 1)
 */
export function delayMs(failed: number, policy: RetryPolicy, random: number): number {
  return Math.ceil(backoffMs(failed - 1, policy.baseMs, policy.maxMs, random, policy.jitter))
}

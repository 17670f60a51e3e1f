/** Errors that a handler throws to control how its job continues. */
import { AttemptError } from '../core/errors.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import { waitMaxMs } from '../core/retry.ts'

/** Codes by which an attempt recognises them, also when they come from another copy of the package. */
export const snoozedCode = 'SLUICE_SNOOZED'
export const retryInCode = 'SLUICE_RETRY_IN'

/** With a shorter delay a handler would run again and again, because nothing counts these attempts. */
const snoozeMinMs = 100

/**
 * Throw it to delay the job, by 100 ms at least: this is no failure, and the attempt does not count.
 * @throws UsageError SLUICE_BAD_DURATION
 */
export function snooze(span: Duration): AttemptError {
  return waiting(snoozedCode, 'delayed by its handler', Math.max(snoozeMinMs, durationMs(span)))
}

/**
 * Throw it to retry the job after exactly this time, instead of the retry policy's. The attempt counts as failed. A job
 * that may run only once is retried, too: its handler asserts that nothing was done.
 * @param options `cause`: the error behind it, which the job's record shows, too
 * @throws UsageError SLUICE_BAD_DURATION
 */
export function retryIn(
  span: Duration,
  reason = 'its handler requested another attempt',
  options: ErrorOptions = {},
): AttemptError {
  return waiting(retryInCode, reason, span, options)
}

/**
 * Throw it to end the job as failed, without further attempts.
 * @param options `cause`: the error behind it, which the job's record shows, too
 * @example throw fail('the mailbox does not exist', { cause: error })
 */
export function fail(reason = 'its handler ended it', { cause }: ErrorOptions = {}): AttemptError {
  return new AttemptError('SLUICE_FAILED', reason, { retryable: false, cause })
}

function waiting(code: string, message: string, span: Duration, { cause }: ErrorOptions = {}): AttemptError {
  const retryAfterMs = Math.min(durationMs(span), waitMaxMs)
  return new AttemptError(code, message, { retryable: true, retryAfterMs, cause })
}

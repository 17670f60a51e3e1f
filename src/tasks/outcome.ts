/** What a handler throws to say how its job goes on. */
import { AttemptError } from '../core/errors.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import { waitMaxMs } from '../core/retry.ts'

/** Codes by which the attempt knows them, also those of another copy of the package. */
export const snoozedCode = 'SLUICE_SNOOZED'
export const retryInCode = 'SLUICE_RETRY_IN'

/** Throw it to put the job off: not a failure, and no attempt counts. @throws UsageError SLUICE_BAD_DURATION */
export function snooze(span: Duration): AttemptError {
  return waiting(snoozedCode, 'put off by its handler', span)
}

/**
 * Throw it to have the job tried again after just this time, instead of the retry policy's. The attempt counts as failed;
 * a job that may run only once is tried again too, for its handler says that nothing was done. @throws UsageError SLUICE_BAD_DURATION
 */
export function retryIn(span: Duration, reason = 'its handler asked for another attempt'): AttemptError {
  return waiting(retryInCode, reason, span)
}

/** Throw it to end the job as failed, without further attempts. */
export function fail(reason: string): AttemptError {
  return new AttemptError('SLUICE_FAILED', reason, { retryable: false })
}

function waiting(code: string, message: string, span: Duration): AttemptError {
  return new AttemptError(code, message, { retryable: true, retryAfterMs: Math.min(durationMs(span), waitMaxMs) })
}

/** What an attempt's failure comes to: a retry, or the end of its job. */
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Outcome } from '../claim/finish/finish.ts'
import type { Clock } from '../core/clock.ts'
import { AttemptError, SluiceError } from '../core/errors.ts'
import { redactText } from '../core/redact.ts'
import { delayMs, waitMaxMs } from '../core/retry.ts'
import { retryInCode, snoozedCode } from '../tasks/outcome.ts'
import type { AnyTask } from '../tasks/task.ts'

const errorBytesMax = 8_192

/** Judges an error by its fields, not by its class: it may come from another copy of the package. */
export function knownError(error: unknown): (SluiceError & Partial<AttemptError>) | undefined {
  return SluiceError.is(error) ? (error as SluiceError & Partial<AttemptError>) : undefined
}

/** Returns how an attempt ends that failed by `error`. @param isInDoubt the call may have been made */
export function verdict(
  job: ClaimedJob,
  task: AnyTask,
  error: unknown,
  isInDoubt: boolean,
  tookMs: number,
  clock: Clock,
): Outcome {
  const text = describe(error)
  const known = knownError(error)
  if (known?.code === snoozedCode) return { kind: 'return', delayMs: known.retryAfterMs ?? 0, held: 'snooze' }
  if (known?.retryable === false) return { kind: 'failed', reason: 'refused', error: text, tookMs }
  if (task.isOnce && isInDoubt) return { kind: 'failed', reason: 'doubtful', error: text, tookMs }
  const failed = job.failed + 1
  if (failed >= task.retry.attempts) return { kind: 'failed', reason: 'exhausted', error: text, tookMs }
  const policyMs = known?.code === retryInCode ? 0 : delayMs(failed, task.retry, clock.random())
  // A vendor's header may contain no number, or one that is more than the store can add to a time.
  const waitMs = Math.min(waitMaxMs, Math.max(policyMs, Number(known?.retryAfterMs) || 0))
  return { kind: 'retry', error: text, delayMs: waitMs, tookMs }
}

/** Returns the error of an attempt that took longer than its task allows. */
export function timeoutError({ timeoutMs }: AnyTask): AttemptError {
  return new AttemptError('SLUICE_TIMEOUT', `the attempt took longer than ${timeoutMs} ms`, { retryable: true })
}

/**
 * Returns an error as JSON that the store can keep, without secrets. Its fields may be anything, and so may a value that
 * is thrown instead of an error.
 */
export function describe(error: unknown): string {
  const text = (value: unknown) =>
    redactText(String(value).slice(0, errorBytesMax))
      // First, because a cut may leave half of a character.
      .slice(0, errorBytesMax / 4)
      .replaceAll('\u0000', '\ufffd')
      .toWellFormed()
  if (!(error instanceof Error)) {
    const message = typeof error === 'string' ? error : 'the handler threw something that is not an Error'
    return JSON.stringify({ name: 'Error', message: text(message) })
  }
  const { name, message, stack, code } = error as { [field in 'name' | 'message' | 'stack' | 'code']?: unknown }
  return JSON.stringify({
    name: text(name ?? 'Error'),
    message: text(message),
    ...(typeof code === 'string' ? { code: text(code) } : {}),
    ...(stack ? { stack: text(stack) } : {}),
  })
}

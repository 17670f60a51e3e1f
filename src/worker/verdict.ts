/** Decides what follows a failed attempt: a retry, and after which delay, or the end of its job. */
import { types } from 'node:util'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import type { Clock } from '../core/clock.ts'
import { AttemptError, isLikeError, SluiceError, textOfThrown } from '../core/errors.ts'
import { span } from '../core/figures.ts'
import { storableText } from '../core/redact.ts'
import { delayMs, waitMaxMs } from '../core/retry.ts'
import type { Refusal } from '../http/feedback.ts'
import { minWaitMs } from '../vendors/time.ts'
import { retryInCode, snoozedCode } from '../tasks/outcome.ts'
import type { AnyTask } from '../tasks/task.ts'

const errorBytesMax = 4_096
/** The longest delay of a job with limits that the vendor refused without stating a time. */
const throttledMaxMs = 60_000

/** How many trials of other jobs a job lets go first while a circuit is open. */
const holdsMost = 3

/** A bad answer that makes no failure of an attempt. */
export interface Throttling extends Refusal {
  /** For how long buckets are held because of it, in ms; undefined: not known. */
  readonly heldMs?: number | undefined
}

/** Judges an error by its fields, not by its class: it may come from another copy of the package. */
export function knownError(error: unknown): (SluiceError & Partial<AttemptError>) | undefined {
  return SluiceError.is(error) ? (error as SluiceError & Partial<AttemptError>) : undefined
}

/** An attempt that failed. */
export interface Failure {
  job: ClaimedJob
  task: AnyTask
  error: unknown
  /** The bad answer that the error is about, if buckets are held because of it. */
  refusal?: Throttling | undefined
  /** The call may have been made. */
  isInDoubt: boolean
  tookMs: number
}

/** Returns how a failed attempt ends. */
export function verdict(failure: Failure, clock: Clock): Outcome {
  const { job, task, error, refusal, isInDoubt, tookMs } = failure
  const text = describe(error)
  const known = knownError(error)
  if (known?.code === snoozedCode)
    return { kind: 'return', delayMs: known.retryAfterMs ?? 0, delayReason: 'snooze', tookMs }
  // The error that `check` throws for a rejected credential is final, unless its jobs wait until the credential works
  // again.
  const isWaiting = refusal?.cause === 'credential' && known?.code === 'SLUICE_HTTP_STATUS'
  if (known?.retryable === false && !isWaiting) return { kind: 'failed', reason: 'refused', error: text, tookMs }
  if (task.isOnce && isInDoubt) return { kind: 'failed', reason: 'doubtful', error: text, tookMs }
  if (refusal !== undefined) return throttledOutcome(failure, refusal, text, clock)
  const failed = job.failed + 1
  if (failed >= task.retry.attempts) return { kind: 'failed', reason: 'exhausted', error: text, tookMs }
  const policyMs = known?.code === retryInCode ? 0 : delayMs(failed, task.retry, clock.random())
  // A vendor's header may contain no number, or one that is more than the store can add to a time.
  const waitMs = Math.min(waitMaxMs, Math.max(policyMs, Number(known?.retryAfterMs) || 0))
  return { kind: 'retry', error: text, delayMs: waitMs, tookMs }
}

/**
 * Returns the outcome of an attempt that the vendor refused. Its job waits as long as the vendor demands, or else for
 * its limits.
 */
function throttledOutcome(
  { job, task: { retry }, tookMs }: Failure,
  { retryAfterMs, cause, heldMs }: Throttling,
  error: string,
  clock: Clock,
): Outcome {
  const times = job.throttled + 1
  if (times > retry.maxThrottled) return { kind: 'failed', reason: 'exhausted', error, tookMs }
  // A job with limits waits for its held buckets too, so its own delay only lets other jobs go first.
  const heldMostMs = cause === undefined ? throttledMaxMs : Math.min(throttledMaxMs, holdsMost * (heldMs ?? 0))
  const mostMs = job.buckets === null ? waitMaxMs : heldMostMs
  const ownMs = Math.min(mostMs, delayMs(times, retry, clock.random()))
  const leastMs = job.buckets === null ? minWaitMs : 0
  const waitMs = Math.min(waitMaxMs, Math.max(leastMs, Number(retryAfterMs ?? ownMs) || 0))
  return { kind: 'throttled', error, delayMs: waitMs, delayReason: 'throttled', tookMs }
}

/**
 * Returns the error of an attempt that took longer than its task allows, or the message from which its job comes, with its limit in
 * ms: as with Celery, that is final.
 */
export function timeoutError({ timeoutMs }: AnyTask, limitMs = Infinity): AttemptError {
  if (limitMs < timeoutMs) {
    const text = `the attempt took longer than its message allows (${span(limitMs)})`
    return new AttemptError('SLUICE_TIMEOUT', text, { retryable: false })
  }
  return new AttemptError('SLUICE_TIMEOUT', `the attempt took longer than ${span(timeoutMs)}`, { retryable: true })
}

/**
 * Returns an error as JSON that the store can keep, without secrets: at most 4 KiB, with its causes. Its fields may be
 * anything, and so may a value that is thrown instead of an error.
 */
export function describe(error: unknown): string {
  const stored = storedError(error, 0)
  // The code that programs look for is often that of a cause: "fetch failed" has ECONNREFUSED below it.
  for (let at = stored.cause; stored.code === undefined && at !== undefined; at = at.cause)
    if (at.code !== undefined) stored.code = at.code
  for (const shorten of shortenings) {
    const json = JSON.stringify(stored)
    if (Buffer.byteLength(json) <= errorBytesMax) return json
    shorten(stored)
  }
  return JSON.stringify(stored)
}

/** An error as it is stored. */
interface StoredError {
  name: string
  message: string
  code?: string
  status?: number
  stack?: string
  cause?: StoredError
}

/** Characters of a message and of a stack: together, and with causes, they may still be more than `errorBytesMax`. */
const charactersMax = 1_500
/** A code or a name is a word. */
const wordMax = 100
const causesMax = 3

const shortenMessage = (error: StoredError) => {
  error.message = error.message.slice(0, error.message.length / 3).toWellFormed()
  delete error.cause
}

/** What an error that is too long loses, until it is short enough. */
const shortenings: readonly ((error: StoredError) => void)[] = [
  (error) => delete error.cause?.cause,
  (error) => error.stack && (error.stack = error.stack.slice(0, charactersMax / 3).toWellFormed()),
  (error) => delete error.stack,
  shortenMessage,
  shortenMessage,
]

function storedError(error: unknown, depth: number): StoredError {
  if (!isLikeError(error)) {
    return { name: 'Error', message: storableText(textOfThrown(error), charactersMax) }
  }
  type Field = 'name' | 'message' | 'stack' | 'code' | 'status' | 'cause' | 'errors'
  const own = error as { [field in Field]?: unknown }
  const { name, stack, code, status, errors } = own
  // An AggregateError, of `Promise.any` or of a host with several addresses, has a list; the latter has no message.
  const cause = own.cause ?? (Array.isArray(errors) && types.isNativeError(errors[0]) ? errors[0] : undefined)
  const message = own.message === '' && isLikeError(cause) ? cause.message : own.message
  return {
    name: storableText(name ?? 'Error', wordMax),
    message: storableText(message, charactersMax),
    ...(typeof code === 'string' ? { code: storableText(code, wordMax) } : {}),
    ...(typeof status === 'number' && Number.isFinite(status) ? { status } : {}),
    // A cause has its message; where it came from is mostly where the error came from.
    ...(stack && depth === 0 ? { stack: storableText(stack, charactersMax) } : {}),
    ...(isLikeError(cause) && depth < causesMax ? { cause: storedError(cause, depth + 1) } : {}),
  }
}

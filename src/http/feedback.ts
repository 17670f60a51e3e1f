import { AttemptError } from '../core/errors.ts'
import type { Answer, Reading } from '../vendors/answer.ts'
import { type Answers, readerOf } from '../vendors/reader.ts'
import { minWaitMs, type TimeOptions } from '../vendors/time.ts'

/** What this module reads of a response: any `fetch` response fits. */
export type ResponseLike = Pick<Answer, 'status' | 'headers'>

/** The vendor demands a pause. */
export interface Limited {
  /** Length of the pause, in whole ms from the moment of the response; 0 < retryAfterMs <= the cap. */
  readonly retryAfterMs: number
}

/** Options for reading a response; the defaults suit most vendors. */
export interface FeedbackOptions extends TimeOptions {
  /**
   * How the vendor's answers are read, as in `answers` of a limit's `vendor`: the name of a profile, or a function.
   * Default: the headers that many vendors share.
   */
  readonly vendor?: Answers
  /** The parsed body, where the profile reads it. */
  readonly body?: unknown
}

/** The code of the error that `rateLimited` returns. */
export const vendorLimitedCode = 'SLUICE_VENDOR_LIMITED'

const noted = new WeakMap<object, Limited>()

/** Remembers what was read from a response on arrival, when the clock was available. */
export function note(response: ResponseLike, limited: Limited): void {
  noted.set(response, limited)
}

/** Returns the pause that a reading of a response demands: 1 s if the vendor refused and states no time. */
export function pauseOf({ refused }: Reading): Limited | undefined {
  return refused === undefined ? undefined : { retryAfterMs: refused.waitMs ?? minWaitMs }
}

/**
 * Returns whether a response demands a pause, and how long. For a response of `ctx.fetch` that is what was read when it
 * arrived, by the profiles of its limits. For any other: a 429 always demands one, of at least 1 s (also when it states
 * no time); a 503 only with a valid `Retry-After`; other statuses by the profile that `vendor` names.
 */
export function limitedBy(response: ResponseLike, options: FeedbackOptions = {}): Limited | undefined {
  const { vendor, body, ...times } = options
  const { status, headers } = response
  return noted.get(response) ?? pauseOf(readerOf([vendor]).read({ status, headers, body }, times))
}

/**
 * Returns the error for a handler to throw after a response that demands a pause: retryable, not before the vendor's
 * time. `SLUICE_VENDOR_LIMITED`. If the response demands none, the job's own retry policy decides when.
 * @param options as in {@link limitedBy}, for a response that is not of `ctx.fetch`
 */
export function rateLimited(response: ResponseLike, options: FeedbackOptions = {}): AttemptError {
  const limited = limitedBy(response, options)
  const when = limited === undefined ? '' : ` for ${limited.retryAfterMs} ms`
  const error = new AttemptError(
    vendorLimitedCode,
    `The vendor answered ${response.status} and demands a pause${when}; an attempt before that would be rejected as well. ` +
      'If this repeats, the limit configured for this vendor is higher than the real one, or something else uses it.',
    limited === undefined ? { retryable: true } : { retryable: true, retryAfterMs: limited.retryAfterMs },
  )
  return Object.assign(error, { status: response.status })
}

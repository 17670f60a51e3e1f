/** Finds in the error that ended an attempt what it shows about the vendor. */
import { AttemptError } from '../core/errors.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import type { Allowance } from '../http/allowance.ts'
import { failureIn, type Refusal, refusalIn, unansweredFailure, vendorLimitedCode } from '../http/feedback.ts'
import type { Limit } from '../limits/limit.ts'
import { retryInCode } from '../tasks/outcome.ts'

/** A bad answer. */
export interface BadAnswer {
  readonly refusal: Refusal
  /** For how long it holds buckets, in ms; undefined: it does not, as far as is known. */
  readonly heldMs: number | undefined
  /** `ctx.fetch` has reported it. */
  readonly isReported: boolean
}

/** If an answer was awaited for less than this when the attempt's time was over, that shows nothing about the vendor. */
const patienceMs = 1_000

/** An attempt's time was over. */
export interface Late {
  /** The host whose answer it awaited then; undefined: none. */
  readonly host: string | undefined
}

/** Notes that an attempt's time is over at this monotonic time. Call it before the abort, which ends what `ctx.fetch` awaits. */
export function lateAt(nowMs: number, allowance: Allowance | undefined): Late {
  return { host: allowance?.unansweredBy(nowMs - patienceMs) }
}

/**
 * Returns the bad answer of a vendor that an error stands for; undefined: it stands for something else.
 * @param late given if the attempt took longer than its task allows
 */
export function badAnswerIn(
  error: unknown,
  limits: readonly Limit[],
  allowance: Allowance | undefined,
  late: Late | undefined,
): BadAnswer | undefined {
  if (late !== undefined)
    return late.host === undefined ? undefined : createBadAnswer(unansweredFailure('no answer in time', late.host))
  const refusal = refusalIn(error, limits)
  if (refusal !== undefined) return { refusal, heldMs: undefined, isReported: allowance?.isRefused === true }
  if (allowance?.bad !== undefined) return { ...allowance.bad, isReported: true }
  // An error after the vendor has served the request is the handler's own.
  if (allowance?.isAccepted === true) return undefined
  const failure = failureIn(error, limits)
  return failure && createBadAnswer(failure)
}

const createBadAnswer = (refusal: Refusal): BadAnswer => ({ refusal, heldMs: undefined, isReported: false })

/** Returns true if surely nothing was done: the error claims so, or the vendor refused the only request. */
export function isSure(
  known: Partial<AttemptError & { status: number }> | undefined,
  allowance: Allowance | undefined,
): boolean {
  if (known?.code === retryInCode) return true
  if ((allowance?.spent ?? 1) > 1) return false
  return known?.code === vendorLimitedCode && (known.status === 429 || allowance?.isRefused === true)
}

/**
 * Returns what the end of an attempt shows. `served`: its vendor served the last request; `done`: it is done although
 * the vendor did not; undefined: neither.
 */
export function shownBy({ kind }: Outcome, allowance: Allowance | undefined): 'served' | 'done' | undefined {
  if (allowance?.bad !== undefined) return kind === 'done' ? 'done' : undefined
  return kind === 'done' || allowance?.isAccepted === true ? 'served' : undefined
}

/** Returns true if it is not known whether the handler has sent a request, because it used no grant for `ctx.fetch`. */
export function isUnseen(allowance: Allowance | undefined): boolean {
  return allowance === undefined || (allowance.spent === 0 && allowance.returned === undefined)
}

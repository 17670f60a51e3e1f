/** Finds refusals and failures of vendors in answers and in thrown errors, and makes the errors that handlers throw for them. */
import { AttemptError, SluiceError } from '../core/errors.ts'
import { span } from '../core/figures.ts'
import { nearest } from '../core/nearest.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { Cause } from '../limits/circuit.ts'
import type { Limit } from '../limits/limit.ts'
import type { Answer, Reading } from '../vendors/answer.ts'
import { profiles } from '../vendors/profiles.ts'
import { type Answers, type Reader, readerOf } from '../vendors/reader.ts'
import { defaultCapMs, type TimeOptions } from '../vendors/time.ts'

/** The parts of a response that this module reads: any `fetch` response fits. */
export type ResponseLike = Pick<Answer, 'status' | 'headers'>

/** The vendor demands a pause. */
export interface Limited {
  /**
   * Length of the pause, in whole ms from the moment of the response; 0 < retryAfterMs <= the cap. Undefined: the vendor
   * states none.
   */
  readonly retryAfterMs: number | undefined
  /** The status, and why, in a few words. */
  readonly reason: string
  /** The vendor's name of the limit that refused, if it states one. */
  readonly policy?: string
}

/** A bad answer of the vendor's: it refused a request because of its own limits, or failed. */
export interface Refusal {
  readonly retryAfterMs: number | undefined
  /** The answer, for people: `429 from api.example.com`. */
  readonly answer: string
  /** The limit that the answer is about, if it names one. */
  readonly limit?: string
  /** Default `refused`; another one is a failure, which holds buckets only when there are several in a row. */
  readonly cause?: Cause
  /** The vendor's host, if it is known. */
  readonly host?: string
}

/** A refusal as users report it; see the fields. */
export interface Refused {
  /** The limit that the vendor named; default: the limits with the request's own keys, else all of them. */
  readonly limit?: string | undefined
  /** How long the vendor wants to be left alone, in ms; default: the time in the response. */
  readonly retryAfterMs?: number | undefined
  /** The response, of any client, or the error that the client threw for it. */
  readonly response?: object | undefined
}

/** Options for reading a response; the defaults suit most vendors. */
export interface FeedbackOptions extends TimeOptions {
  /**
   * How the vendor's answers are read, as in `answers` of a limit's `vendor`: the name of a profile, or a function.
   * Default: the headers that many vendors share.
   */
  readonly vendor?: Answers | undefined
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

/** Returns the pause that a reading of a response demands. */
export function pauseOf({ refused }: Reading): Limited | undefined {
  if (refused === undefined) return undefined
  const { waitMs, reason, policy } = refused
  return { retryAfterMs: waitMs, reason, ...(policy !== undefined && { policy }) }
}

function readerBy(vendor: Answers | undefined): Reader {
  if (typeof vendor !== 'string' || Object.hasOwn(profiles, vendor)) return readerOf([vendor])
  throw mistakeError(`there is no vendor "${vendor as string}"; ${known(vendor, Object.keys(profiles))}`)
}

/**
 * Makes the error for a mistake in what reads a refusal. Mostly nothing runs that before a vendor first refuses, so the jobs
 * that meet it are tried again, and go on with code that is corrected.
 */
function mistakeError(text: string, code = 'SLUICE_BAD_OPTION'): AttemptError {
  return new AttemptError(code, text, { retryable: true })
}

function known(name: string, names: readonly string[]): string {
  const like = nearest(name, names)
  const all = `there are: ${names.length === 0 ? 'none' : names.join(', ')}`
  return like === undefined ? all : `did you mean "${like}"? ${all}`
}

/**
 * Returns whether a response demands a pause, and how long. For a response of `ctx.fetch` that is what was read when it
 * arrived, by the profiles of its limits. For any other: a 429 always demands one (also when it states no time); a 503
 * only with a valid `Retry-After`; other statuses by the profile that `vendor` names.
 * @throws AttemptError SLUICE_BAD_OPTION for a vendor without a profile; a job whose handler lets it through is tried again
 */
export function limitedBy(response: ResponseLike, options: FeedbackOptions = {}): Limited | undefined {
  const { vendor, body, ...times } = options
  const { status, headers } = response
  return noted.get(response) ?? pauseOf(readerBy(vendor).read({ status, headers, body }, times))
}

/** Returns a header among those of any client: an object with `get`, or a plain one with names in any case. */
function headerIn(headers: unknown, name: string): string | null {
  if (typeof headers !== 'object' || headers === null) return null
  if ('get' in headers && typeof headers.get === 'function') {
    const value: unknown = headers.get(name)
    return typeof value === 'string' ? value : null
  }
  const value: unknown = Object.entries(headers).find(([own]) => own.toLowerCase() === name)?.[1]
  const found: unknown = Array.isArray(value) ? value.join(', ') : value
  return typeof found === 'string' || typeof found === 'number' ? String(found) : null
}

/** Returns the response in something that a client returned or threw; undefined: there is none. */
function responseIn(value: unknown): Answer | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const { status, statusCode, headers, response, data, error, body } = value as Record<string, unknown>
  if (typeof response === 'object' && response !== null && 'status' in response) return responseIn(response)
  if (noted.has(value)) return value as Answer
  const code = status ?? statusCode
  if (typeof code !== 'number') return undefined
  return { status: code, headers: { get: (name) => headerIn(headers, name) }, body: data ?? error ?? body }
}

function pauseIn(value: unknown, reader: Reader, times: TimeOptions): Limited | undefined {
  const answer = responseIn(value)
  return answer && (noted.get(answer) ?? pauseOf(reader.read(answer, times)))
}

/**
 * Returns the error for a handler to throw after a response that demands a pause: the job waits as long as the vendor
 * demands, and the attempt is no failure. `SLUICE_VENDOR_LIMITED`. If no time is stated, the limits that the vendor refused
 * decide when.
 * @param from a response, what an HTTP client threw for one, or the pause: ms, or text such as `'30s'`
 * @param options as in {@link limitedBy}, for a response that is not of `ctx.fetch`
 * @throws AttemptError SLUICE_BAD_OPTION, SLUICE_BAD_DURATION; a job whose handler lets it through is tried again
 */
export function rateLimited(from: object | Duration, options: FeedbackOptions = {}): AttemptError {
  const { vendor, ...times } = options
  const reader = readerBy(vendor)
  const isSpan = typeof from === 'number' || typeof from === 'string'
  const waitMs = isSpan ? spanMs(from) : pauseIn(from, reader, times)?.retryAfterMs
  const status = isSpan ? undefined : responseIn(from)?.status
  const what = status === undefined ? 'demands' : `answered ${status} and demands`
  const when = waitMs === undefined ? '' : ` of ${span(waitMs)}`
  const error = new AttemptError(
    vendorLimitedCode,
    `The vendor ${what} a pause${when}; an attempt before that would be rejected as well. ` +
      'If this repeats, the limit configured for this vendor is higher than the real one, or something else uses it.',
    waitMs === undefined ? { retryable: true } : { retryable: true, retryAfterMs: waitMs },
  )
  return Object.assign(error, { status: status ?? 429 })
}

/** Returns a pause that a handler gives; undefined: a number that is no time, as of a header that is missing. */
function spanMs(from: Duration): number | undefined {
  if (typeof from === 'number') return Number.isFinite(from) && from >= 0 ? from : undefined
  try {
    return durationMs(from)
  } catch {
    const text = `rateLimited: "${from}" is not a span of time: give the response, ms as a number, or text such as '30s'`
    throw mistakeError(text, 'SLUICE_BAD_DURATION')
  }
}

/** The codes of errors that HTTP clients throw when no answer arrived, beside the `TypeError` of `fetch`. */
function isUnanswered(value: unknown): boolean {
  if (value instanceof TypeError) return value.message === 'fetch failed'
  const { isAxiosError, response } = (value ?? {}) as Record<string, unknown>
  return isAxiosError === true && response === undefined
}

/**
 * Returns the failure in a response, or in what a handler threw for one: the vendor's server failed, or did not answer,
 * or it rejected the credential. Undefined: it is something else. Call it if `refusalIn` finds nothing.
 */
export function failureIn(value: unknown, limits: readonly Answered[]): Refusal | undefined {
  const isStatus = SluiceError.is(value) && value.code === 'SLUICE_HTTP_STATUS'
  if (SluiceError.is(value) && !isStatus) return undefined
  const answer = responseIn(value)
  if (answer === undefined) return isUnanswered(value) ? { ...failed('no answer'), cause: 'down' } : undefined
  return failureFrom(readerFor(limits).read(answer), answer.status)
}

const failed = (answer: string) => ({ retryAfterMs: undefined, answer })

/** Returns the failure in an answer that refuses nothing. @param host the vendor's, if it is known */
export function failureFrom({ credential }: Reading, status: number, host?: string): Refusal | undefined {
  const from = host === undefined ? failed(`${status}`) : { ...failed(`${status} from ${host}`), host }
  if (credential === 'rejected') return { ...from, cause: 'credential' }
  // 501: it does not know the method, which is the request's fault.
  return status >= 500 && status !== 501 ? { ...from, cause: 'down' } : undefined
}

/** Returns the failure of a request that got no answer. @param why a few words */
export function unansweredFailure(why: string, host: string): Refusal {
  return { ...failed(`${why} from ${host}`), cause: 'down', host }
}

/** Returns true for a response that the vendor gave after it counted the request; call it if `refusalIn` finds nothing. */
export function isAccepted(value: unknown): boolean {
  // After a server's error it is not known whether the vendor counted the request.
  return (responseIn(value)?.status ?? 500) < 500
}

/** A limit, as far as it matters here. */
export type Answered = Pick<Limit, 'answers'> & Partial<Pick<Limit, 'rules' | 'currency'>>

/** Returns what reads the answers to requests under these limits. */
export function readerFor(limits: readonly Answered[]): Reader {
  return readerOf(limits.map(({ answers }) => answers))
}

const dayMs = 86_400_000

/**
 * Returns the longest pause that a vendor may demand of requests under these limits, in ms: an hour, or their longest window
 * or period, after which the vendor counts anew. At most a day, because the answer may be wrong: one request a day then
 * tries again. A budget in money is ours.
 */
export function pauseMaxMs(limits: readonly Answered[]): number {
  const theirs = limits.filter(({ currency }) => currency === undefined)
  const windowsMs = theirs.flatMap(({ rules = [] }) => rules.map(({ windowUs }) => Math.ceil(windowUs / 1_000)))
  return Math.min(dayMs, Math.max(defaultCapMs, ...windowsMs))
}

function refusalFrom({ retryAfterMs, reason, policy }: Limited): Refusal {
  return { retryAfterMs, answer: reason, ...(policy !== undefined && { limit: policy }) }
}

/**
 * Returns the refusal in a response, or in what a handler threw: the error of `rateLimited`, or that of an HTTP client or
 * an SDK for a response that refuses. Undefined: it is something else.
 * @param limits those of the request: their vendors' answers are read as their definitions name
 */
export function refusalIn(value: unknown, limits: readonly Answered[], times: TimeOptions = {}): Refusal | undefined {
  if (SluiceError.is(value)) {
    if (value.code !== vendorLimitedCode) return undefined
    const { retryAfterMs, status } = value as Partial<AttemptError & { status: number }>
    return {
      retryAfterMs: usableMs(retryAfterMs, limits),
      answer: status === undefined ? 'the vendor' : String(status),
    }
  }
  const limited = pauseIn(value, readerFor(limits), { capMs: pauseMaxMs(limits), ...times })
  return limited && refusalFrom(limited)
}

/** Returns a stated wait, at most what a vendor may demand; undefined: none is stated, or it is no time. */
function usableMs(statedMs: number | undefined, limits: readonly Answered[]): number | undefined {
  const isUsable = statedMs !== undefined && Number.isFinite(statedMs) && statedMs >= 0
  return isUsable ? Math.min(statedMs, pauseMaxMs(limits)) : undefined
}

/** Returns what users report of a refusal in the form that limits are held by. */
export function refusalOf(reported: Refused, limits: readonly (Answered & Pick<Limit, 'name'>)[]): Refusal {
  const { limit, retryAfterMs, response, ...others } = reported
  const odd = Object.keys(others)[0]
  if (odd !== undefined) throw mistakeError(`\`refused\` has no "${odd}"; there are limit, retryAfterMs, response`)
  if (limit !== undefined && !limits.some(({ name }) => name === limit)) {
    const names = limits.map(({ name }) => name)
    throw mistakeError(`\`refused\` names the limit "${limit}", which the task does not have; ${known(limit, names)}`)
  }
  const found = response && refusalIn(response, limits)
  const named = limit ?? found?.limit
  return {
    retryAfterMs: usableMs(retryAfterMs ?? found?.retryAfterMs, limits),
    answer: found?.answer ?? 'reported by the program',
    ...(named !== undefined && { limit: named }),
  }
}

/** Returns the refusal in a response of `fetch`. @param host the vendor's, for people */
export function refusalBy(limited: Limited, host: string): Refusal {
  return { ...refusalFrom({ ...limited, reason: `${limited.reason} from ${host}` }), host }
}

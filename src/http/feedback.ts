import { AttemptError, SluiceError } from '../core/errors.ts'

/** What this module reads of a response: any `fetch` response fits. */
export interface ResponseLike {
  readonly status: number
  readonly headers: { get(name: string): string | null }
}

/** The vendor demands a pause. */
export interface Limited {
  /** Length of the pause, in whole ms from the moment of the response; 0 < retryAfterMs <= the cap. Undefined: not stated. */
  readonly retryAfterMs: number | undefined
}

/** A request that the vendor refused because of its own limits. */
export interface Refusal extends Limited {
  /** The answer, for people: `429 from api.example.com`. */
  readonly answer: string
  /** The limit that the answer is about, if it names one. */
  readonly limit?: string
}

/** A refusal as users report it; see the fields. */
export interface Refused {
  /** The limit that the vendor named; default: the limits with the request's own keys, else all of them. */
  readonly limit?: string
  /** How long the vendor wants to be left alone, in ms; default: the time in the response. */
  readonly retryAfterMs?: number
  /** The response, of any client, or the error that the client threw for it. */
  readonly response?: object
}

/** Options for reading a response; the defaults suit most vendors. */
export interface FeedbackOptions {
  /** The longest pause that is accepted, in ms; default 1 hour, at least 1 s. */
  readonly capMs?: number
  /** Wall time in ms since 1970, used for a date only when the response has no usable `Date` of its own. */
  readonly wallMs?: number
}

/** The code of the error that `rateLimited` returns. */
export const vendorLimitedCode = 'SLUICE_VENDOR_LIMITED'
/**
 * Pause after a 429 without a time, and the shortest pause after any 429, in ms: calling at once would cause the next
 * 429.
 */
export const defaultHoldMs = 1_000
/** The longest pause that is accepted unless configured, in ms. */
export const defaultCapMs = 3_600_000

const month = '(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)'
const time = '\\d{2}:\\d{2}:\\d{2}'
// The three forms of a date which a recipient must accept (RFC 9110, 5.6.7), oldest last. Anything else that the
// runtime's parser would accept ("-5", "2026") is a vendor's mistake and must not be read as a date.
const dateForms = [
  new RegExp(`^[A-Z][a-z]{2}, \\d{2} ${month} \\d{4} ${time} GMT$`),
  new RegExp(`^[A-Z][a-z]{5,8}, \\d{2}-${month}-\\d{2} ${time} GMT$`),
  new RegExp(`^[A-Z][a-z]{2} ${month} [ \\d]\\d ${time} \\d{4}$`),
]

function parseDate(text: string): number | undefined {
  if (!dateForms.some((form) => form.test(text))) return undefined
  const ms = Date.parse(text.endsWith('GMT') ? text : `${text} GMT`)
  return Number.isNaN(ms) ? undefined : ms
}

/**
 * Reads a `Retry-After` value: seconds (a fraction is tolerated) or an HTTP date, which counts from the response's own
 * `Date`, so that neither side's clock matters. Returns whole ms, rounded up, 0 <= result <= cap; undefined when
 * malformed.
 */
export function parseRetryAfter(value: string, date: string | null, options: FeedbackOptions = {}): number | undefined {
  const capMs = Math.max(options.capMs ?? defaultCapMs, defaultHoldMs)
  const text = value.trim()
  if (/^\d+(?:\.\d+)?$/.test(text)) return Math.min(Math.ceil(Number(text) * 1_000), capMs)
  const untilMs = parseDate(text)
  const fromMs = (date === null ? undefined : parseDate(date.trim())) ?? options.wallMs
  if (untilMs === undefined || fromMs === undefined || Number.isNaN(fromMs)) return undefined
  return Math.min(Math.max(Math.ceil(untilMs - fromMs), 0), capMs)
}

const noted = new WeakMap<object, Limited>()

/** Remembers what was read from a response on arrival, when the clock was available. */
export function note(response: ResponseLike, limited: Limited): void {
  noted.set(response, limited)
}

/**
 * Returns whether a response demands a pause, and how long. A 429 always does: the time in `Retry-After`, at least 1 s,
 * and an unknown time when it is missing or malformed. A 503 does only with a valid `Retry-After`. Everything else: undefined.
 */
export function limitedBy(response: ResponseLike, options: FeedbackOptions = {}): Limited | undefined {
  const known = noted.get(response)
  if (known !== undefined) return known
  if (response.status !== 429 && response.status !== 503) return undefined
  const value = response.headers.get('retry-after')
  const parsedMs = value === null ? undefined : parseRetryAfter(value, response.headers.get('date'), options)
  if (response.status === 429)
    return { retryAfterMs: parsedMs === undefined ? undefined : Math.max(parsedMs, defaultHoldMs) }
  return parsedMs === undefined || parsedMs === 0 ? undefined : { retryAfterMs: parsedMs }
}

/** Returns a header among those of any client: an object with `get`, or a plain one with names in any case. */
function headerIn(headers: unknown, name: string): string | null {
  if (typeof headers !== 'object' || headers === null) return null
  if ('get' in headers && typeof headers.get === 'function') {
    const value: unknown = headers.get(name)
    return typeof value === 'string' ? value : null
  }
  const found: unknown = Object.entries(headers).find(([own]) => own.toLowerCase() === name)?.[1]
  return typeof found === 'string' || typeof found === 'number' ? String(found) : null
}

function isResponse(value: object): value is ResponseLike {
  if (!('status' in value) || typeof value.status !== 'number') return false
  const { headers } = value as { headers?: unknown }
  return typeof headers === 'object' && headers !== null && 'get' in headers && typeof headers.get === 'function'
}

/** Returns the status and the headers of something that a client returned or threw; undefined: it has none. */
function responseOf(value: unknown): ResponseLike | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  const { status, statusCode, headers, response } = value as Record<string, unknown>
  if (typeof response === 'object' && response !== null && 'status' in response)
    return responseOf({ status: response.status, headers: 'headers' in response ? response.headers : undefined })
  if (isResponse(value)) return value
  const code = status ?? statusCode
  return typeof code === 'number' ? { status: code, headers: { get: (name) => headerIn(headers, name) } } : undefined
}

/**
 * Returns the error for a handler to throw after a response that demands a pause: the job waits as long as the vendor demands,
 * and the attempt is no failure. `SLUICE_VENDOR_LIMITED`. If the response names no time, the limits that the vendor refused
 * decide when.
 * @param from a response, what an HTTP client threw for one, or the pause in ms
 */
export function rateLimited(from: ResponseLike | number | object): AttemptError {
  const response = typeof from === 'number' ? undefined : responseOf(from)
  const waitMs = typeof from === 'number' ? from : response && limitedBy(response)?.retryAfterMs
  const what = response === undefined ? 'demands' : `answered ${response.status} and demands`
  const when = waitMs === undefined ? '' : ` of ${Math.ceil(waitMs)} ms`
  const error = new AttemptError(
    vendorLimitedCode,
    `The vendor ${what} a pause${when}; an attempt before that would be rejected as well. ` +
      'If this repeats, the limit configured for this vendor is higher than the real one, or something else uses it.',
    waitMs === undefined ? { retryable: true } : { retryable: true, retryAfterMs: waitMs },
  )
  return Object.assign(error, { status: response?.status ?? 429 })
}

/**
 * Returns the refusal in a response, or in what a handler threw: the error of `rateLimited`, or that of an HTTP client or
 * an SDK for a response with 429. Undefined: it is something else.
 */
export function refusalIn(error: unknown, options: FeedbackOptions = {}): Refusal | undefined {
  if (SluiceError.is(error)) {
    if (error.code !== vendorLimitedCode) return undefined
    const { retryAfterMs, status } = error as Partial<AttemptError & { status: number }>
    return { retryAfterMs, answer: status === undefined ? 'the vendor' : String(status) }
  }
  const response = responseOf(error)
  const limited = response && limitedBy(response, options)
  return limited && { ...limited, answer: String(response?.status) }
}

/** Returns what users report of a refusal in the form that limits are held by. */
export function refusalOf({ limit, retryAfterMs, response: given }: Refused, options: FeedbackOptions = {}): Refusal {
  const response = responseOf(given)
  const statedMs = retryAfterMs ?? (response && limitedBy(response, options)?.retryAfterMs)
  const isUsable = statedMs !== undefined && Number.isFinite(statedMs) && statedMs >= 0
  const waitMs = isUsable ? Math.min(statedMs, Math.max(options.capMs ?? defaultCapMs, defaultHoldMs)) : undefined
  return {
    retryAfterMs: waitMs,
    answer: response === undefined ? 'reported by the program' : String(response.status),
    ...(limit !== undefined && { limit }),
  }
}

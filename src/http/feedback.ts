import { AttemptError } from '../core/errors.ts'
import { span } from '../core/figures.ts'

/** What this module reads of a response: any `fetch` response fits. */
export interface ResponseLike {
  readonly status: number
  readonly headers: { get(name: string): string | null }
}

/** The vendor demands a pause. */
export interface Limited {
  /** Length of the pause, in whole ms from the moment of the response; 0 < retryAfterMs <= the cap. */
  readonly retryAfterMs: number
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
 * and 1 s when it is missing or malformed. A 503 does only with a valid `Retry-After`. Everything else: undefined.
 */
export function limitedBy(response: ResponseLike, options: FeedbackOptions = {}): Limited | undefined {
  const known = noted.get(response)
  if (known !== undefined) return known
  if (response.status !== 429 && response.status !== 503) return undefined
  const value = response.headers.get('retry-after')
  const parsedMs = value === null ? undefined : parseRetryAfter(value, response.headers.get('date'), options)
  if (response.status === 429) return { retryAfterMs: Math.max(parsedMs ?? 0, defaultHoldMs) }
  return parsedMs === undefined || parsedMs === 0 ? undefined : { retryAfterMs: parsedMs }
}

/**
 * Returns the error for a handler to throw after a response that demands a pause: retryable, not before the vendor's
 * time. `SLUICE_VENDOR_LIMITED`. If the response names no time, the job's own retry policy decides when.
 */
export function rateLimited(response: ResponseLike): AttemptError {
  const limited = limitedBy(response)
  const when = limited === undefined ? '' : ` of ${span(limited.retryAfterMs)}`
  const error = new AttemptError(
    vendorLimitedCode,
    `The vendor answered ${response.status} and demands a pause${when}; an attempt before that would be rejected as well. ` +
      'If this repeats, the limit configured for this vendor is higher than the real one, or something else uses it.',
    limited === undefined ? { retryable: true } : { retryable: true, retryAfterMs: limited.retryAfterMs },
  )
  return Object.assign(error, { status: response.status })
}

import { AttemptError } from '../core/errors.ts'

/** What this room reads of a response: any `fetch` response fits. */
export interface ResponseLike {
  readonly status: number
  readonly headers: { get(name: string): string | null }
}

/** The vendor asked for silence. */
export interface Limited {
  /** How long to stay silent, in whole ms from the moment of the response; 0 < retryAfterMs <= the cap. */
  readonly retryAfterMs: number
}

/** How a response is read; the defaults suit most vendors. */
export interface FeedbackOptions {
  /** The longest silence that is believed, in ms; default 1 hour, at least 1 s. */
  readonly capMs?: number
  /** Wall time in ms since 1970, used for a date only when the response has no usable `Date` of its own. */
  readonly wallMs?: number
}

/** The code of the error of `rateLimited`. */
export const vendorLimitedCode = 'SLUICE_VENDOR_LIMITED'
/** Silence after a 429 that names no time, and the least after any 429, in ms: "at once" would draw the next 429. */
export const defaultHoldMs = 1_000
/** The longest silence that is believed unless configured, in ms. */
export const defaultCapMs = 3_600_000

const month = '(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)'
const time = '\\d{2}:\\d{2}:\\d{2}'
// The three forms of a date which a recipient must accept (RFC 9110, 5.6.7), oldest last. Anything else that the
// runtime's parser would take ("-5", "2026") is a mistake of the vendor's and must not be read as a date.
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
 * `Date`, so that neither side's clock matters. Whole ms, rounded up, 0 <= result <= cap; undefined when unreadable.
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

/** Remembers what was read of a response on arrival, when the clock was at hand. */
export function note(response: ResponseLike, limited: Limited): void {
  noted.set(response, limited)
}

/**
 * Whether a response asks for silence, and for how long. A 429 always does: for what `Retry-After` says, at least 1 s,
 * and 1 s when it is missing or unreadable. A 503 does only with a readable `Retry-After`. Everything else: undefined.
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
 * The error to throw from a handler after a response that said "not now": retryable, not before the vendor's time.
 * `SLUICE_VENDOR_LIMITED`. For a response that names no time, the job's own retry policy decides when.
 */
export function rateLimited(response: ResponseLike): AttemptError {
  const limited = limitedBy(response)
  const when = limited === undefined ? '' : ` for ${limited.retryAfterMs} ms`
  const error = new AttemptError(
    vendorLimitedCode,
    `The vendor answered ${response.status} and asks for silence${when}; an attempt before that would be refused as well. ` +
      'If this repeats, the limit configured for this vendor is higher than the real one, or somebody else uses it.',
    limited === undefined ? { retryable: true } : { retryable: true, retryAfterMs: limited.retryAfterMs },
  )
  return Object.assign(error, { status: response.status })
}

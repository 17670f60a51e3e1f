/** Times in answers, as whole ms from the answer: rounded up, never negative, never above the cap. */

/** The shortest wait after any refusal, in ms: calling at once would cause the next one. */
export const minWaitMs = 1_000
/** The longest time that is accepted unless configured, in ms: 1 hour. */
export const defaultCapMs = 3_600_000

/** Options for reading an answer; the defaults suit most vendors. */
export interface TimeOptions {
  /** The longest time that is accepted, in ms; default 1 hour, at least 1 s. */
  readonly capMs?: number | undefined
  /** Wall time in ms since 1970, used for dates and instants only when the answer has no usable `Date` of its own. */
  readonly wallMs?: number
}

/** How an answer's times are read; see the fields. */
export interface Moment {
  readonly capMs: number
  /** When the answer was sent, in ms since 1970, by the vendor's clock; undefined: not known. */
  readonly sentMs: number | undefined
}

const month = '(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)'
const time = '\\d{2}:\\d{2}:\\d{2}'
// The three forms of a date which a recipient must accept (RFC 9110, 5.6.7), oldest last. Anything else that the
// runtime's parser would accept ("-5", "2026") is a vendor's mistake and must not be read as a date.
const dateForms = [
  new RegExp(`^[A-Z][a-z]{2}, \\d{2} ${month} \\d{4} ${time} GMT$`),
  new RegExp(`^[A-Z][a-z]{5,8}, \\d{2}-${month}-\\d{2} ${time} GMT$`),
  new RegExp(`^[A-Z][a-z]{2} ${month} [ \\d]\\d ${time} \\d{4}$`),
]
const instantForm = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/i
const numberForm = /^\d+(?:\.\d+)?$/
const durationForm = /^(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h|d))+$/

const unitMs: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
}

/** A number of seconds from here on is an instant in seconds since 1970 (2001 was the first), no span of 31 years. */
const firstEpochSeconds = 1e9
/** A number from this one on is an instant in ms (1973 was the first). */
const firstEpochMs = 1e11
/** A number from this one on is neither (microseconds, a bug). */
const firstUnknown = 1e14

function parseDate(text: string): number | undefined {
  if (!dateForms.some((form) => form.test(text))) return undefined
  const ms = Date.parse(text.endsWith('GMT') ? text : `${text} GMT`)
  return Number.isNaN(ms) ? undefined : ms
}

/** Returns from when the times of an answer count. @param date its `Date` header */
export function momentOf(date: string | null, options: TimeOptions = {}): Moment {
  const { capMs = defaultCapMs, wallMs } = options
  const sentMs = (date === null ? undefined : parseDate(date.trim())) ?? wallMs
  return { capMs: Math.max(capMs, minWaitMs), sentMs: Number.isFinite(sentMs) ? sentMs : undefined }
}

/** Returns a time as it may be used; undefined if it is no number. */
export function wholeMs(ms: number | undefined, { capMs }: Moment): number | undefined {
  if (ms === undefined || Number.isNaN(ms)) return undefined
  return Math.ceil(Math.min(Math.max(ms, 0), capMs))
}

/** Returns how long after the answer an instant is. */
function msUntil(instantMs: number | undefined, at: Moment): number | undefined {
  if (instantMs === undefined || at.sentMs === undefined) return undefined
  return wholeMs(instantMs - at.sentMs, at)
}

/**
 * Reads a `Retry-After` value: seconds (a fraction and an instant as a number are tolerated) or an HTTP date, which
 * counts from the answer's own `Date`, so that neither side's clock matters. If a value stands there several times, the
 * latest counts. Undefined when malformed.
 */
export function readRetryAfter(value: string, at: Moment): number | undefined {
  return latest(value, (text) => (numberForm.test(text) ? readNumber(text, at) : msUntil(parseDate(text), at)))
}

/** Reads a header that may have been sent several times: then its values stand there with commas between them, as in dates. */
function latest(value: string, read: (text: string) => number | undefined): number | undefined {
  const one = read(value.trim())
  if (one !== undefined || !value.includes(',')) return one
  const all = value.split(/,(?! ?\d\d[ -][A-Z])/).flatMap((part) => read(part.trim()) ?? [])
  return all.length === 0 ? undefined : Math.max(...all)
}

/** Reads a number of ms; of several, the largest. Undefined when malformed. */
export function readMs(value: string, at: Moment): number | undefined {
  return latest(value, (text) => (numberForm.test(text) ? wholeMs(Number(text), at) : undefined))
}

/**
 * Reads when a count begins anew, in any of the forms that vendors use: seconds, an instant in seconds or ms since 1970,
 * a duration (`12ms`, `6m0s`), an instant of RFC 3339, an HTTP date. If a value stands there several times, the latest
 * counts. Undefined when malformed.
 */
export function readReset(value: string, at: Moment): number | undefined {
  return latest(value, (text) => readOneReset(text, at))
}

function readOneReset(text: string, at: Moment): number | undefined {
  if (numberForm.test(text)) return readNumber(text, at)
  if (durationForm.test(text)) return wholeMs(durationOf(text), at)
  return msUntil(instantForm.test(text) ? instantOf(text) : parseDate(text), at)
}

/** Reads a number of seconds, or an instant in seconds or ms since 1970. */
function readNumber(text: string, at: Moment): number | undefined {
  const number = Number(text)
  if (number < firstEpochSeconds) return wholeMs(number * 1_000, at)
  if (number < firstEpochMs) return msUntil(number * 1_000, at)
  return number < firstUnknown ? msUntil(number, at) : undefined
}

function durationOf(text: string): number {
  let ms = 0
  for (const [, number, unit = ''] of text.matchAll(/(\d+(?:\.\d+)?)([a-zµ]+)/g))
    ms += Number(number) * (unitMs[unit] ?? Number.NaN)
  return ms
}

function instantOf(text: string): number | undefined {
  const ms = Date.parse(text)
  return Number.isNaN(ms) ? undefined : ms
}

import { systemClock } from '../core/clock.ts'
import { AttemptError } from '../core/errors.ts'
import { span } from '../core/figures.ts'
import { encodePayload, payloadBytesMax, payloadDepthMax } from '../core/payload.ts'
import { hideKnown, redact } from '../core/redact.ts'
import { readBody } from './capped.ts'
import { limitedBy } from './feedback.ts'
import { statusError } from './status.ts'
import type { RequestInput } from './input.ts'
import type { Secrets } from './secret.ts'

export { requestSchema, requestSchemaWith } from './input.ts'
export type { RequestInput } from './input.ts'

/** The result of the built-in `http` task. */
export interface RequestResult {
  readonly status: number
  /** Lower-case names; several values of one name are joined by `, `; cookies and the like as `[redacted]`. */
  readonly headers: Readonly<Record<string, string>>
  /** Parsed when the media type is JSON, and the text is JSON that can be stored; else the text, decoded as UTF-8. */
  readonly body: unknown
  /** The result with the whole body would be too long to be stored (256 KiB): `body` is the beginning of its text. */
  readonly isCut?: true
}

/** The parameters of `sendRequest` besides the request. */
export interface RequestOptions {
  /** The attempt's `ctx.fetch`. */
  readonly fetch: typeof globalThis.fetch
  /** Sent as `Idempotency-Key` unless the input has one: the same for each attempt of the job. */
  readonly jobId: string
  readonly signal: AbortSignal
  /** Values of the secrets that the input refers to; default none. */
  readonly secrets?: Secrets
  /** Sent unless the input has headers of the same names; never sent to the target of a redirect. */
  readonly headers?: Readonly<Record<string, string>>
}

const defaultTimeoutMs = 30_000
const defaultMaxBytes = 1_048_576
/** What is allowed to a body, which is a field of the result. */
const bodyBounds = { bytesMax: payloadBytesMax, depthMax: payloadDepthMax - 1 }

/** Replaces known secrets in a response body, which may repeat what it was sent. */
function hideKnownIn(body: unknown): unknown {
  const hidden = (_: string, value: unknown): unknown => {
    if (typeof value === 'string') return hideKnown(value)
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
    // `fromEntries` defines own fields, `__proto__` too.
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [hideKnown(name), inner as unknown]))
  }
  return JSON.parse(JSON.stringify(body), hidden) as unknown
}

/** Returns a body that can be stored, because the request has been carried out: a result that cannot would fail the job. */
function parseBody(bytes: Buffer, contentType: string | null): unknown {
  // As the decoder does with bytes that are no UTF-8.
  const text = new TextDecoder().decode(bytes).replaceAll('\0', '\uFFFD')
  const mediaType = (contentType ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? ''
  if (mediaType !== 'application/json' && !mediaType.endsWith('+json')) return text
  try {
    const body = JSON.parse(text) as unknown
    encodePayload(body, 'the body', undefined, bodyBounds)
    return body
  } catch {
    return text
  }
}

/** Returns a result that can be stored: the end of a body that is too long is cut off. */
function shorten(result: RequestResult): RequestResult {
  const { body } = result
  let text = typeof body === 'string' ? body : JSON.stringify(body)
  for (let shown = result; ; shown = { ...result, body: text, isCut: true }) {
    const bytes = Buffer.byteLength(JSON.stringify(shown))
    if (bytes <= payloadBytesMax || text === '') return shown
    const kept = text.slice(0, Math.floor((text.length * payloadBytesMax * 0.99) / bytes))
    // Without half of a character at its end.
    text = kept.replace(/[\uD800-\uDBFF]$/, '')
  }
}

/** A request in which the references to secrets have been replaced by their values. */
interface Filled extends RequestInput {
  readonly headers?: Readonly<Record<string, string>>
  readonly query?: Readonly<Record<string, string>>
  readonly form?: Readonly<Record<string, string>>
}

/** Returns the URL with the query appended: parsing the URL's own query would change its encoding. */
function urlOf({ url, query }: Filled): string {
  const added = new URLSearchParams(query).toString()
  const whole = new URL(url)
  if (added !== '') whole.search = whole.search === '' ? added : `${whole.search}&${added}`
  return whole.href
}

function initOf(input: Filled, jobId: string): RequestInit & { method: string } {
  const headers = new Headers(input.headers)
  if (!headers.has('idempotency-key')) headers.set('idempotency-key', jobId)
  if (input.json !== undefined && !headers.has('content-type')) headers.set('content-type', 'application/json')
  let body: string | URLSearchParams | undefined = input.text
  if (input.json !== undefined) body = JSON.stringify(input.json)
  else if (input.form !== undefined) body = new URLSearchParams({ ...input.form })
  const method = (input.method ?? (body === undefined ? 'GET' : 'POST')).toUpperCase()
  return body === undefined ? { method, headers } : { method, headers, body }
}

function brokenOffError(where: string, cause: unknown): AttemptError {
  return new AttemptError('SLUICE_NETWORK', `${where} broke off its response. Another attempt may succeed.`, {
    retryable: true,
    cause,
  })
}

async function exchange(
  input: RequestInput,
  options: RequestOptions,
  signal: AbortSignal,
  where: string,
): Promise<RequestResult> {
  const filled = await options.secrets?.fill(input)
  const given = (filled ?? input) as Filled
  const names = new Set(Object.keys(given.headers ?? {}).map((name) => name.toLowerCase()))
  const more = Object.entries(options.headers ?? {}).filter(([name]) => !names.has(name.toLowerCase()))
  const sent: Filled = { ...given, headers: { ...given.headers, ...Object.fromEntries(more) } }
  const isSecret = filled !== undefined || more.length > 0
  // The secrets are meant for this origin, not for the target of a redirect.
  const mode = !isSecret ? {} : { mode: 'same-origin' as const }
  const response = await options.fetch(urlOf(sent), { ...initOf(sent, options.jobId), ...mode, signal })
  if (!response.ok || limitedBy(response) !== undefined) throw await statusError(response, where)
  const maxBytes = input.maxResponseBytes ?? defaultMaxBytes
  const isLonger = Number(response.headers.get('content-length') ?? 0) > maxBytes
  const { bytes, isWhole, failure } = await readBody(response, isLonger ? -1 : maxBytes)
  if (failure !== undefined) throw brokenOffError(where, failure)
  if (!isWhole) {
    throw new AttemptError(
      'SLUICE_RESPONSE_TOO_LARGE',
      `${where} answered ${response.status} with more than ${maxBytes} bytes. ` +
        'The request was carried out, but its response was not kept: raise maxResponseBytes, or request less.',
      { retryable: false },
    )
  }
  const headers = redact(Object.fromEntries(response.headers))
  const body = parseBody(bytes, response.headers.get('content-type'))
  return shorten({ status: response.status, headers, body: isSecret ? hideKnownIn(body) : body })
}

/**
 * Runs the built-in `http` task: sends one request; 2xx is success. Rejects with an AttemptError: retryable for 408, 425,
 * 429, 5xx (`SLUICE_HTTP_STATUS`, or `SLUICE_VENDOR_LIMITED` when the vendor demands a pause), a timeout
 * (`SLUICE_TIMEOUT`) and network failures (`SLUICE_NETWORK`); final for other statuses and for a response over
 * `maxResponseBytes` (`SLUICE_RESPONSE_TOO_LARGE`). A request with secrets is redirected within its origin only
 * (`SLUICE_REDIRECT`). An abort of `signal` rejects with its reason. The input must have passed `requestSchema`.
 */
export async function sendRequest(input: RequestInput, options: RequestOptions): Promise<RequestResult> {
  const timeoutMs = input.timeoutMs ?? defaultTimeoutMs
  const url = new URL(input.url)
  const where = `${url.origin}${url.pathname}`
  const timeout = new AbortController()
  const late = new AttemptError(
    'SLUICE_TIMEOUT',
    `${where} did not answer within ${span(timeoutMs)}. Another attempt may succeed.`,
    {
      retryable: true,
    },
  )
  const cancel = systemClock.after(timeoutMs, () => timeout.abort(late))
  try {
    return await exchange(input, options, AbortSignal.any([options.signal, timeout.signal]), where)
  } catch (error) {
    if (options.signal.aborted) throw options.signal.reason
    if (timeout.signal.aborted) throw late
    throw error
  } finally {
    cancel()
  }
}

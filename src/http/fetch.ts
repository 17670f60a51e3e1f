import type { Response as UndiciResponse } from 'undici'
import type { Clock } from '../core/clock.ts'
import { AttemptError, codeOf, SluiceError, UsageError, textOfError } from '../core/errors.ts'
import type { Reader } from '../vendors/reader.ts'
import type { GuardedAgent } from './agent.ts'
import { type RequestCost, type Spending, StaleGrantError } from './allowance.ts'
import { encodeBody } from './body.ts'
import { readBody } from './capped.ts'
import { loadClient } from './client.ts'
import {
  type Answered,
  failureFrom,
  note,
  pauseMaxMs,
  pauseOf,
  readerFor,
  type Refusal,
  refusalBy,
  unansweredFailure,
} from './feedback.ts'
import { answerOf } from './answer.ts'
import { type Grant, keepWarm, createSendCheck, type SendCheck } from './send-check.ts'
import { maxRedirects, redirectError, redirectTo } from './redirect.ts'
import type { Hop } from './redirect.ts'

/** Options of `createFetch`. */
export interface FetchOptions {
  /** The connections, with the addresses that they may reach: see `createAgent`. */
  readonly agent: GuardedAgent
  readonly clock: Clock
  /** The grants. Its signal aborts each request and each wait for a grant, with its reason. */
  readonly allowance: Spending
  /** The limits that its requests are under: their vendors' answers are read as their definitions name. */
  readonly limits?: readonly Answered[]
}

/** How many grants in a row may expire while connecting before `fetch` fails. */
export const maxStaleGrants = 5

const networkCode = 'SLUICE_NETWORK'

interface Plan extends Hop {
  readonly redirect: 'follow' | 'manual' | 'error'
  readonly staysHome: boolean
  readonly signal: AbortSignal
}

interface RequestLike {
  readonly url: string
  readonly method: string
  readonly headers: Iterable<[string, string]>
  readonly body: unknown
  readonly redirect: 'follow' | 'manual' | 'error'
  readonly mode: string
  readonly signal: AbortSignal | undefined
  arrayBuffer(): Promise<ArrayBuffer>
}

// Checked by shape: a Request of the runtime and one of the package are different classes, and both are accepted.
function isRequest(input: unknown): input is RequestLike {
  return typeof input === 'object' && input !== null && !(input instanceof URL) && 'url' in input && 'headers' in input
}

async function planOf(input: unknown, init: RequestInit | undefined, own: AbortSignal): Promise<Plan> {
  if (init !== undefined && 'dispatcher' in init && init.dispatcher !== undefined) {
    throw new UsageError(
      'SLUICE_FETCH_DISPATCHER',
      'ctx.fetch does not take a dispatcher: it would bypass the limits. Configure the connections of the worker instead.',
    )
  }
  const from = isRequest(input) ? input : undefined
  const body = init?.body ?? (from?.body ? await bodyOf(from) : null)
  const encoded = await encodeBody(body)
  const { Headers, Request: ClientRequest } = loadClient()
  const headers = new Headers((init?.headers ?? from?.headers ?? []) as [string, string][])
  if (encoded.contentType !== undefined && !headers.has('content-type'))
    headers.set('content-type', encoded.contentType)
  const redirect = init?.redirect ?? from?.redirect ?? 'follow'
  // Validates method, URL, headers and redirect mode as in the standard; throws TypeError before any grant is spent.
  const valid = new ClientRequest(from?.url ?? String(input), {
    method: init?.method ?? from?.method ?? 'GET',
    headers,
    redirect,
  })
  if ((valid.method === 'GET' || valid.method === 'HEAD') && body !== null) {
    throw new TypeError(`A ${valid.method} request cannot have a body`)
  }
  const extra = init?.signal ?? from?.signal
  const signal = extra === undefined || extra === null ? own : AbortSignal.any([own, extra])
  return {
    url: new URL(valid.url),
    method: valid.method,
    headers,
    bytes: encoded.bytes,
    stream: encoded.stream,
    redirect,
    staysHome: (init?.mode ?? from?.mode) === 'same-origin',
    signal,
  }
}

/** Reads the body of a Request. A source that fails may not fail in the next attempt, so its TypeError is no bad request. */
async function bodyOf(from: RequestLike): Promise<Buffer> {
  try {
    return Buffer.from(await from.arrayBuffer())
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    throw new Error(`the body of the Request cannot be read: ${error.message}`, { cause: error })
  }
}

/** Returns the error of a call that makes no request, such as one with a URL that cannot be parsed: the same call never will. */
function badRequest(error: unknown): unknown {
  return error instanceof TypeError ? noRequest(error) : error
}

function noRequest(cause: Error): UsageError {
  return new UsageError('SLUICE_BAD_REQUEST', `this call of fetch makes no request: ${cause.message}`, { cause })
}

function nameOf(hop: Hop): string {
  return `${hop.method} ${hop.url.origin}${hop.url.pathname}`
}

/** What undici names requests that it refuses to write: headers that only it may set, or that contradict the body. */
const refusedCodes = ['UND_ERR_INVALID_ARG', 'UND_ERR_NOT_SUPPORTED', 'UND_ERR_REQ_CONTENT_LENGTH_MISMATCH']

/**
 * Returns a network error, unless the cause is on this side: an error of Sluice (a further grant could not be taken), a source
 * of the body that failed, or a request that cannot be written.
 */
function failureOf(hop: Hop, error: unknown): Error {
  const source = hop.stream?.failure
  const cause = source ? source.error : error instanceof TypeError && error.cause !== undefined ? error.cause : error
  if (SluiceError.is(cause)) return cause
  const text = textOfError(cause)
  if (source) return new Error(`the body of ${nameOf(hop)} cannot be read: ${text}`, { cause })
  const code = codeOf(cause)
  if (cause instanceof Error && refusedCodes.some((one) => one === code)) return noRequest(cause)
  const first = typeof code === 'string' ? `${code} ` : ''
  return new AttemptError(networkCode, `${nameOf(hop)} got no answer: ${first}${text}. Another attempt may succeed.`, {
    retryable: true,
    cause,
  })
}

function isTimeout(reason: unknown): boolean {
  return reason instanceof Error && reason.name === 'TimeoutError'
}

/** Reports that the vendor failed, or demands a pause. */
async function report(refusal: Refusal, grant: Grant | undefined, allowance: Spending): Promise<void> {
  try {
    await allowance.recordRefusal(refusal, grant)
  } catch {
    // While the store is unavailable, nobody learns of it.
  }
}

/** A body of at most this many bytes is read to its end, so that its connection can be used again. */
const readOnMax = 65_536
const readOnMsMax = 100

/** Frees the connection of an unused response: reads on when little is left and comes soon, else closes it. */
async function discard(response: UndiciResponse): Promise<void> {
  // The header counts the bytes on the wire, not those after decompression.
  const length = Number(response.headers.get('content-length') ?? Number.NaN)
  await readBody(response, length <= readOnMax ? readOnMax : -1, readOnMsMax)
}

/**
 * Creates the `fetch` of one attempt. Each request, including each redirect hop, has a grant of its own. The grant's
 * deadline is checked when the connection is open and just before the first byte is written; if the grant has expired by
 * then, the request is not sent and takes another one. Differences from the standard:
 * - network failures reject with AttemptError `SLUICE_NETWORK` (retryable), refused redirects with `SLUICE_REDIRECT`
 * (final), a grant that cannot be used in time with `SLUICE_GRANT_STALE` (retryable);
 * - a call that makes no request (a URL that cannot be parsed, a body of a GET, `Transfer-Encoding`) rejects with UsageError
 * `SLUICE_BAD_REQUEST` (final; it uses no grant), and one whose source of a streamed body fails with an error about that;
 * - an address that is not public and not allowed rejects with `SLUICE_BLOCKED_ADDRESS` (final; its grant is refunded);
 * - `mode: 'same-origin'` rejects redirects that leave the origin;
 * - the body of a Request is buffered;
 * - a refusal (429, 503 with Retry-After, what else the profile of a limit's vendor knows) holds the buckets that it
 * concerns before the response is returned.
 *
 * A failure while the response's body is read stays a TypeError.
 */
export function createFetch(options: FetchOptions): typeof globalThis.fetch {
  const { allowance } = options
  const reader = readerFor(options.limits ?? [])
  const call = async (input: unknown, init?: RequestInit & { cost?: RequestCost }): Promise<UndiciResponse> => {
    allowance.signal.throwIfAborted()
    const plan = await planOf(input, init, allowance.signal).catch((error: unknown) => {
      throw badRequest(error)
    })
    let hop: Hop = plan
    for (let followed = 0; ; followed++) {
      const { response, grant } = await send(hop, plan.signal, options, init?.cost)
      await readFeedback(response, grant, hop, options, reader)
      if (plan.redirect === 'manual') return response
      const next = redirectTo(hop, response.status, response.headers.get('location'))
      if (next === undefined) return followed === 0 ? response : markRedirected(response)
      await discard(response)
      if (plan.redirect === 'error') throw redirectError(hop, "redirect is 'error'")
      if (plan.staysHome && next.url.origin !== hop.url.origin)
        throw redirectError(hop, `to ${next.url.origin}, another origin`)
      if (followed === maxRedirects) throw redirectError(hop, `more than ${maxRedirects} redirects`)
      hop = next
    }
  }
  return call as unknown as typeof globalThis.fetch
}

function markRedirected(response: UndiciResponse): UndiciResponse {
  return Object.defineProperty(response, 'redirected', { value: true })
}

/** A response, and the grant of the request that it answers. */
interface Sent {
  readonly response: UndiciResponse
  readonly grant: Grant | undefined
}

/** Sends one request, with as many grants as it takes until it is written before one expires. */
async function send(hop: Hop, signal: AbortSignal, options: FetchOptions, cost?: RequestCost): Promise<Sent> {
  const { agent, clock, allowance } = options
  const refusal = agent.guard.check(hop.url)
  if (refusal !== undefined) {
    await allowance.refundOwn()
    throw refusal
  }
  let unused: Grant | undefined
  let why = `${maxStaleGrants} grants in a row ran out while connecting; connections to this vendor take longer than a grant lives`
  for (let stale = 0; stale < maxStaleGrants; stale++) {
    const taking = allowance.takeNext(signal, unused, cost)
    let grant = await (stale === 0 ? taking : keepWarm(agent, hop.url.origin, clock, taking))
    const sendCheck = createSendCheck({
      agent,
      clock,
      grant,
      bytes: hop.bytes,
      stream: hop.stream,
      take: async () => (grant = await allowance.takeNext(signal, undefined, cost)),
    })
    const answered = allowance.recordAwaited(hop.url.host, clock.monotonicMs())
    try {
      const body = hop.bytes ?? hop.stream
      const content = body === undefined ? {} : { body, duplex: 'half' as const }
      const { method, headers } = hop
      const { dispatcher } = sendCheck
      const how = { method, headers, redirect: 'manual' as const, signal, dispatcher }
      return { response: await loadClient().fetch(hop.url, { ...how, ...content }), grant }
    } catch (error) {
      unused = signal.aborted ? undefined : sendCheck.unused()
      if (unused === undefined) throw await judgeFailure(error, hop, signal, allowance, { grant, sendCheck })
      if (hop.stream?.isBegun) {
        why =
          'its grant ran out before the first part of its body was there, and a stream cannot be read twice; use bytes'
        break
      }
    } finally {
      answered()
    }
  }
  if (unused !== undefined) await allowance.giveBack(unused)
  const error = new StaleGrantError(`${nameOf(hop)} was not sent: ${why}. Another attempt may succeed.`)
  allowance.giveUp(error)
  throw error
}

/** Reports a failed request, or gives its grant back; resolves to the error for the caller. */
async function judgeFailure(
  error: unknown,
  hop: Hop,
  signal: AbortSignal,
  allowance: FetchOptions['allowance'],
  { grant, sendCheck }: { grant: Grant | undefined; sendCheck: SendCheck },
): Promise<unknown> {
  const { host } = hop.url
  if (signal.aborted) {
    // The caller's own `AbortSignal.timeout` has ended it. An attempt judges its time-out itself.
    if (isTimeout(signal.reason)) await report(unansweredFailure('no answer in time', host), grant, allowance)
    return signal.reason
  }
  const failure = failureOf(hop, error)
  if (codeOf(failure) === networkCode) await report(unansweredFailure('no answer', host), grant, allowance)
  // The fault is on this side, such as a name that resolves to a forbidden address.
  else if (!sendCheck.isWritten() && grant !== undefined) await allowance.giveBack(grant)
  return failure
}

/**
 * Applies what the vendor responds about its limits. The handler gets its response even when the store is unavailable.
 */
async function readFeedback(
  response: UndiciResponse,
  grant: Grant | undefined,
  hop: Hop,
  options: FetchOptions,
  reader: Reader,
): Promise<void> {
  const wallMs = options.clock.wallMs()
  const capMs = pauseMaxMs(options.limits ?? [])
  const reading = reader.read(await answerOf(response, reader), { wallMs, capMs })
  options.allowance.recordCounts(reading.counts)
  const limited = pauseOf(reading)
  if (limited === undefined) {
    const { host } = hop.url
    const failure = failureFrom(reading, response.status, host)
    if (failure !== undefined) await report(failure, grant, options.allowance)
    // After a server's error it is not known whether the vendor counted the request.
    else if (response.status < 500 && grant !== undefined) options.allowance.recordAccepted(grant, host)
    return
  }
  note(response, limited)
  await report(refusalBy(limited, hop.url.host), grant, options.allowance)
}

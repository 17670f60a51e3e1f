import { fetch as undiciFetch, Headers, Request as UndiciRequest } from 'undici'
import type { Response as UndiciResponse } from 'undici'
import type { Clock } from '../core/clock.ts'
import { AttemptError, SluiceError, UsageError } from '../core/errors.ts'
import type { GuardedAgent } from './agent.ts'
import { type Allowance, type RequestCost, StaleGrantError } from './allowance.ts'
import { encodeBody } from './body.ts'
import { limitedBy, note } from './feedback.ts'
import { type Grant, keepWarm, openGate } from './gate.ts'
import { blockedCode } from './guard.ts'
import { maxRedirects, redirectError, redirectTo } from './redirect.ts'
import type { Hop } from './redirect.ts'

/** A response that asked for silence, as told to `onFeedback`. */
export interface Feedback {
  readonly status: number
  /** Origin and path of the request, without its query. */
  readonly url: string
  /** How long the buckets were held, in ms. */
  readonly retryAfterMs: number
  /** Set when the hold could not be recorded: other workers go on calling. */
  readonly error?: unknown
}

/** Options of `createFetch`. */
export interface FetchOptions {
  /** The connections, and where they may go: see `createAgent`. */
  readonly agent: GuardedAgent
  readonly clock: Clock
  /** What the attempt may send. Its signal aborts every request and every wait for a grant, with its reason. */
  readonly allowance: Allowance
  /** The longest silence that a vendor may ask for, in ms; default 1 hour, at least 1 s. */
  readonly maxHoldMs?: number
  /** Called for every response that asked for silence, after the hold. What it throws is ignored. */
  readonly onFeedback?: (feedback: Feedback) => void
}

/** How many grants in a row may run out while connecting before `fetch` gives up. */
export const maxStaleGrants = 5

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

// By shape: a Request of the runtime and one of the package are different classes, and both are welcome.
function isRequest(input: unknown): input is RequestLike {
  return typeof input === 'object' && input !== null && !(input instanceof URL) && 'url' in input && 'headers' in input
}

async function planOf(input: unknown, init: RequestInit | undefined, own: AbortSignal): Promise<Plan> {
  if (init !== undefined && 'dispatcher' in init && init.dispatcher !== undefined) {
    throw new UsageError(
      'SLUICE_FETCH_DISPATCHER',
      'ctx.fetch does not take a dispatcher: it would pass by the limits. Configure the connections of the worker instead.',
    )
  }
  const from = isRequest(input) ? input : undefined
  const body = init?.body ?? (from?.body ? Buffer.from(await from.arrayBuffer()) : null)
  const encoded = await encodeBody(body)
  const headers = new Headers((init?.headers ?? from?.headers ?? []) as [string, string][])
  if (encoded.contentType !== undefined && !headers.has('content-type'))
    headers.set('content-type', encoded.contentType)
  const redirect = init?.redirect ?? from?.redirect ?? 'follow'
  // Validates method, URL, headers and redirect mode as the standard demands; throws TypeError, before any grant is spent.
  const valid = new UndiciRequest(from?.url ?? String(input), {
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

function nameOf(hop: Hop): string {
  return `${hop.method} ${hop.url.origin}${hop.url.pathname}`
}

/** A network error, unless the cause is one of ours (a further grant could not be taken). */
function failureOf(hop: Hop, error: unknown): SluiceError {
  const cause = error instanceof TypeError && error.cause !== undefined ? error.cause : error
  if (SluiceError.is(cause)) return cause
  const code = typeof cause === 'object' && cause !== null && 'code' in cause ? `${String(cause.code)} ` : ''
  const text = cause instanceof Error ? cause.message : String(cause)
  return new AttemptError(
    'SLUICE_NETWORK',
    `${nameOf(hop)} got no answer: ${code}${text}. Another attempt may succeed.`,
    {
      retryable: true,
      cause,
    },
  )
}

/** A body of at most so many bytes is read on, so that its connection can be used again. */
const readOnMax = 65_536

/** Frees the connection of a response that nobody reads: by reading on when little is left, else by closing. */
async function discard(response: UndiciResponse): Promise<void> {
  try {
    const reader = response.body?.getReader()
    // That header counts the bytes on the wire, and says nothing of what they become when decompressed.
    const length = Number(response.headers.get('content-length') ?? Number.NaN)
    let left = length <= readOnMax ? readOnMax : -1
    while (left >= 0) {
      const part = await reader?.read()
      if (part === undefined || part.done) return
      left -= part.value.byteLength
    }
    await reader?.cancel()
  } catch {
    // The response was of no interest, so neither is its failure.
  }
}

/**
 * A `fetch` for one attempt. Every request, each redirect hop included, is covered by a grant of its own, whose deadline
 * is checked when the connection stands and just before the first byte is written; a grant that ran out by then is
 * taken again, unsent. Differs from the standard: failures of the network reject with AttemptError `SLUICE_NETWORK`
 * (retryable), refused redirects with `SLUICE_REDIRECT` (final), a grant that cannot be used in time with
 * `SLUICE_GRANT_STALE` (retryable), an address that is not public and not allowed with `SLUICE_BLOCKED_ADDRESS` (final,
 * and its grant goes back); `mode: 'same-origin'` refuses redirects that leave the origin; a body read off a Request is buffered; 429, and 503 with Retry-After, hold the
 * buckets of the job before the response is returned. A failure while the response's body is read stays a TypeError.
 */
export function createFetch(options: FetchOptions): typeof globalThis.fetch {
  const { allowance } = options
  const call = async (input: unknown, init?: RequestInit & { cost?: RequestCost }): Promise<UndiciResponse> => {
    allowance.signal.throwIfAborted()
    const plan = await planOf(input, init, allowance.signal)
    let hop: Hop = plan
    for (let followed = 0; ; followed++) {
      const response = await send(hop, plan.signal, options, init?.cost)
      await heed(response, hop, options)
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

/** Sends one request, with as many grants as it needs to be written under a live one. */
async function send(hop: Hop, signal: AbortSignal, options: FetchOptions, cost?: RequestCost): Promise<UndiciResponse> {
  const { agent, clock, allowance } = options
  const refusal = agent.guard.check(hop.url)
  if (refusal !== undefined) {
    await allowance.forgo()
    throw refusal
  }
  let unused: Grant | undefined
  let why = `${maxStaleGrants} grants in a row ran out while connecting; connections to this vendor take longer than a grant lives`
  for (let stale = 0; stale < maxStaleGrants; stale++) {
    const taking = allowance.next(signal, unused, cost)
    const grant = await (stale === 0 ? taking : keepWarm(agent, hop.url.origin, clock, taking))
    const gate = openGate({
      agent,
      clock,
      grant,
      bytes: hop.bytes,
      take: () => allowance.next(signal, undefined, cost),
    })
    try {
      const body = hop.bytes ?? hop.stream
      const content = body === undefined ? {} : { body, duplex: 'half' as const }
      const { method, headers } = hop
      return await undiciFetch(hop.url, {
        method,
        headers,
        redirect: 'manual',
        signal,
        dispatcher: gate.dispatcher,
        ...content,
      })
    } catch (error) {
      if (signal.aborted) throw signal.reason
      if (!gate.stale()) {
        const failure = failureOf(hop, error)
        // Refused by the address that its name leads to: nothing was written.
        if (failure.code === blockedCode && grant !== undefined) await allowance.giveBack(grant)
        throw failure
      }
      unused = gate.unused()
      if (hop.stream?.isBegun) {
        why =
          'its grant ran out before the first part of its body was there, and a stream cannot be read twice; use bytes'
        break
      }
    }
  }
  if (unused !== undefined) await allowance.giveBack(unused)
  const error = new StaleGrantError(`${nameOf(hop)} was not sent: ${why}. Another attempt may succeed.`)
  allowance.giveUp(error)
  throw error
}

/** Passes on what the vendor says about its limits. The handler gets its response even when the store is away. */
async function heed(response: UndiciResponse, hop: Hop, options: FetchOptions): Promise<void> {
  const capMs = options.maxHoldMs === undefined ? {} : { capMs: options.maxHoldMs }
  const limited = limitedBy(response, { wallMs: options.clock.wallMs(), ...capMs })
  if (limited === undefined) return
  note(response, limited)
  const { retryAfterMs } = limited
  const feedback: Feedback = { status: response.status, url: `${hop.url.origin}${hop.url.pathname}`, retryAfterMs }
  const tell = (told: Feedback) => {
    try {
      options.onFeedback?.(told)
    } catch {
      // An observer must not change the fate of the attempt.
    }
  }
  try {
    await options.allowance.hold(retryAfterMs, `${response.status} from ${hop.url.host}`)
    tell(feedback)
  } catch (error) {
    tell({ ...feedback, error })
  }
}

import { closeSync, openSync, writeSync } from 'node:fs'
import { createServer } from 'node:http'
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { hrtime } from 'node:process'
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { prove } from './proof.ts'
import type { Arrival, Claim, Proof } from './proof.ts'
import { algorithms, charge, emptyWindow, release, waitOf } from './window.ts'
import type { Algorithm, WindowRule, WindowState } from './window.ts'

/** The parts of a request that a key function gets. */
export interface VendorRequest {
  readonly method: string
  readonly url: URL
  readonly headers: IncomingHttpHeaders
}

/** One limit of the vendor. */
export interface VendorRule {
  /** The rule's name in the report; default: algorithm, limit and window. */
  readonly name?: string | undefined
  readonly algorithm: Algorithm
  /** Requests per window, or at one time for `concurrency`; a whole number from 1. */
  readonly limit: number
  /** Length of the window in ms; required except for `concurrency`. */
  readonly windowMs?: number | undefined
  /** Capacity of a `bucket`; default `limit`. */
  readonly burst?: number | undefined
  /** The key by which the limit is counted: the path, a header, a query field, or a function of the request; default: all requests together. */
  readonly key?: 'path' | `header:${string}` | `query:${string}` | ((request: VendorRequest) => string) | undefined
  /** The window that `report()` proves; default `limit` per `windowMs`, none for `concurrency`. */
  readonly proofWindow?: { readonly limit: number; readonly windowMs: number } | undefined
}

/** How the vendor misbehaves. Every fault counts as an arrival. */
export interface Faults {
  /** Additional delay of every answer, in ms; default 0. */
  readonly delayMs?: number | undefined
  /** Records every nth arrival and resets its connection without an answer; default: none. */
  readonly resetEvery?: number | undefined
  /** Answers the first n arrivals of each job with `failStatus`; default 0. */
  readonly failFirst?: number | undefined
  /** The status of `failFirst`; default 500. */
  readonly failStatus?: number | undefined
  /** The form of `Retry-After` in a denial; default `seconds`. With `date` the answer also has a `Date` header. */
  readonly retryAfter?: 'seconds' | 'date' | 'none' | undefined
}

/** Options of `vendor`. */
export interface VendorOptions {
  /** The port; default: any free port. */
  readonly port?: number | undefined
  readonly rules: readonly VendorRule[]
  /** How long an answer takes, in ms; default 0. */
  readonly latencyMs?: number | undefined
  /** The status of a request that is allowed; default 200. */
  readonly status?: number | undefined
  /** The status of a request that a limit denies; default 429. Some vendors answer 403. */
  readonly deniedStatus?: number | undefined
  readonly faults?: Faults | undefined
  /** A file to which arrivals are appended, one JSON object a line; default: none. */
  readonly file?: string | undefined
  /** Answers `GET /.vendor/report`, `GET /.vendor/arrivals` and `POST /.vendor/wipe` without counting them; default false. */
  readonly control?: boolean | undefined
}

/** The proof, from the arrivals. */
export type Report = Proof

/** A stand-in for a third-party API with limits. */
export interface Vendor {
  /** Starts the server on loopback; resolves to its URL, without a slash at the end. */
  listen(): Promise<string>
  /** Returns every arrival so far, in order. */
  arrivals(): readonly Arrival[]
  /** Proves, from the arrivals alone, whether any window had more than its limit. */
  report(): Report
  /** Deletes all arrivals; the limiters keep their state. */
  wipe(): void
  /** Closes all connections and the file; a second call does nothing. */
  close(): Promise<void>
}

interface Limiter {
  readonly rule: WindowRule
  readonly keyOf: (request: VendorRequest) => string
  readonly states: Map<string, WindowState>
}

function keyFunction(key: VendorRule['key']): (request: VendorRequest) => string {
  if (key === undefined) return () => ''
  if (typeof key === 'function') return key
  if (key === 'path') return ({ url }) => url.pathname
  const name = key.slice(key.indexOf(':') + 1).trim()
  if (key.startsWith('query:')) return ({ url }) => url.searchParams.get(name) ?? ''
  return ({ headers }) => String(headers[name.toLowerCase()] ?? '')
}

function limiterOf(rule: VendorRule): Limiter {
  checkFields('SLUICE_VENDOR_RULE', 'a rule of `vendor`', rule, ruleFields)
  const { algorithm, limit, windowMs = 0, burst = limit } = rule
  if (!algorithms.includes(algorithm))
    throw new UsageError(
      'SLUICE_VENDOR_RULE',
      `A vendor knows no algorithm "${algorithm}": use ${algorithms.join(', ')}.`,
    )
  const windowIsGood = algorithm === 'concurrency' || windowMs > 0
  if (!Number.isInteger(limit) || limit < 1 || !windowIsGood || burst < 1) {
    throw new UsageError(
      'SLUICE_VENDOR_RULE',
      `A vendor rule (${algorithm}) needs a whole limit and a burst of at least 1, and a windowMs above 0 unless it is concurrency.`,
    )
  }
  return {
    rule: { algorithm, limit, windowNs: windowMs * 1e6, burst },
    keyOf: keyFunction(rule.key),
    states: new Map(),
  }
}

function claimOf(rule: VendorRule): Claim | undefined {
  const { algorithm, limit, windowMs = 0 } = rule
  const name =
    rule.name ?? (algorithm === 'concurrency' ? `concurrency ${limit}` : `${algorithm} ${limit}/${windowMs} ms`)
  if (rule.proofWindow !== undefined) return { name, ...rule.proofWindow }
  return algorithm === 'concurrency' ? undefined : { name, limit, windowMs }
}

/** Decides a request for all rules at once: all allow it and are charged, or none is. Returns the longest wait in ns; 0: allowed. */
function decide(limiters: readonly Limiter[], keys: readonly string[], nowNs: number): number {
  let longestNs = 0
  const states: WindowState[] = []
  for (const [i, { rule, states: byKey }] of limiters.entries()) {
    const key = keys[i] ?? ''
    const state = byKey.get(key) ?? emptyWindow(rule)
    byKey.set(key, state)
    states.push(state)
    longestNs = Math.max(longestNs, waitOf(rule, state, nowNs))
  }
  if (longestNs > 0) return longestNs
  for (const [i, state] of states.entries()) charge((limiters[i] as Limiter).rule, state, nowNs)
  return 0
}

/** Opens a log of arrivals, which writes once per turn of the event loop, so that many requests cost few system calls. */
function openLog(path: string | undefined): { add(arrival: Arrival): void; close(): void } {
  if (path === undefined) return { add: () => {}, close: () => {} }
  const file = openSync(path, 'a')
  let lines = ''
  let open = true
  const flush = () => {
    if (lines === '' || !open) return
    const text = lines
    lines = ''
    writeSync(file, text)
  }
  return {
    add(arrival) {
      if (lines === '') setImmediate(flush)
      lines += `${JSON.stringify(arrival)}\n`
    },
    close() {
      flush()
      if (open) closeSync(file)
      open = false
    },
  }
}

function retryAfter(waitNs: number, form: Faults['retryAfter']): Record<string, string> {
  if (form === 'none') return {}
  const seconds = Number.isFinite(waitNs) ? Math.ceil(waitNs / 1e9) : 1
  if (form !== 'date') return { 'retry-after': String(seconds) }
  // Any time would do, because clients subtract the two dates.
  const fromMs = Date.UTC(2026, 0, 1)
  return { date: new Date(fromMs).toUTCString(), 'retry-after': new Date(fromMs + seconds * 1_000).toUTCString() }
}

const ruleFields = ['name', 'algorithm', 'limit', 'windowMs', 'burst', 'key', 'proofWindow']
const vendorFields = ['port', 'rules', 'latencyMs', 'status', 'deniedStatus', 'faults', 'file', 'control']

/** The vendor's state: its limiters and the arrivals. */
class Ledger {
  readonly arrivals: Arrival[] = []
  readonly limiters: readonly Limiter[]
  readonly #options: VendorOptions
  readonly #originNs = hrtime.bigint()
  readonly #log: ReturnType<typeof openLog>
  readonly #failed = new Map<string, number>()
  #seq = 0

  constructor(options: VendorOptions) {
    checkFields('SLUICE_VENDOR_RULE', '`vendor`', options, vendorFields)
    if (!Array.isArray(options.rules))
      throw new UsageError('SLUICE_VENDOR_RULE', '`vendor` needs `rules`, a list of limits; [] limits nothing')
    this.#options = options
    this.limiters = options.rules.map(limiterOf)
    this.#log = openLog(options.file)
  }

  /** Reads the time, then decides and records a request; `waitNs` is 0 if the limits allow it. */
  admit(request: IncomingMessage): { arrival: Arrival; waitNs: number } {
    const atNs = Number(hrtime.bigint() - this.#originNs)
    const { method = 'GET', headers } = request
    const url = new URL(request.url ?? '/', 'http://vendor')
    const keys = this.limiters.map(({ keyOf }) => keyOf({ method, url, headers }))
    const waitNs = decide(this.limiters, keys, atNs)
    // Node joins repeated headers; only of `set-cookie` it makes a list.
    const { 'idempotency-key': jobId, 'x-sluice-attempt': attempt } = headers as Record<string, string | undefined>
    const seq = this.#seq++
    const verdict = waitNs > 0 ? (this.#options.deniedStatus ?? 429) : this.#statusFor(seq, jobId)
    const who = { ...(jobId === undefined ? {} : { jobId }), ...(attempt === undefined ? {} : { attempt }) }
    const arrival: Arrival = { seq, atNs, keys, ...who, method, path: url.pathname, verdict }
    this.arrivals.push(arrival)
    this.#log.add(arrival)
    return { arrival, waitNs }
  }

  /** Releases the limiters when an allowed request has ended. */
  finish(arrival: Arrival): void {
    for (const [i, { rule, states }] of this.limiters.entries()) {
      const state = states.get(arrival.keys[i] ?? '')
      if (state !== undefined) release(rule, state)
    }
  }

  close(): void {
    this.#log.close()
  }

  #statusFor(seq: number, jobId = ''): number {
    const { resetEvery, failFirst = 0, failStatus = 500 } = this.#options.faults ?? {}
    if (resetEvery !== undefined && (seq + 1) % resetEvery === 0) return 0
    const failures = this.#failed.get(jobId) ?? 0
    if (failures >= failFirst) return this.#options.status ?? 200
    this.#failed.set(jobId, failures + 1)
    return failStatus
  }
}

function answer(request: IncomingMessage, response: ServerResponse, ledger: Ledger, options: VendorOptions): void {
  const { arrival, waitNs } = ledger.admit(request)
  if (waitNs === 0) response.once('close', () => ledger.finish(arrival))
  request.resume()
  const send = () => {
    if (arrival.verdict === 0) return request.socket.resetAndDestroy()
    const headers = waitNs > 0 ? retryAfter(waitNs, options.faults?.retryAfter) : {}
    const body = arrival.verdict === 204 || arrival.verdict === 304 ? '' : `{"seq":${arrival.seq}}`
    return response.writeHead(arrival.verdict, { 'content-type': 'application/json', ...headers }).end(body)
  }
  const delayMs = (options.latencyMs ?? 0) + (options.faults?.delayMs ?? 0)
  if (delayMs > 0) setTimeout(send, delayMs)
  else send()
}

async function stop(server: Server): Promise<void> {
  if (!server.listening) return
  const closed = new Promise((resolve) => server.close(resolve))
  server.closeAllConnections()
  await closed
}

/**
 * Creates a stand-in for a third-party API on loopback. It enforces limits as vendors do, records every arrival with a
 * monotonic time before it answers, and proves afterwards whether a limit was exceeded. A denied request is an arrival, but
 * does not count in the limiter.
 * @throws UsageError SLUICE_VENDOR_RULE for an invalid rule
 */
export function vendor(options: VendorOptions): Vendor {
  const ledger = new Ledger(options)
  const report = () => prove(ledger.arrivals, options.rules.map(claimOf))
  const wipe = () => void (ledger.arrivals.length = 0)
  const control = (request: IncomingMessage, response: ServerResponse) => {
    request.resume()
    const route = `${request.method} ${request.url}`
    if (route === 'POST /.vendor/wipe') wipe()
    const known = {
      'GET /.vendor/report': report,
      'GET /.vendor/arrivals': () => ledger.arrivals,
      'POST /.vendor/wipe': () => ({}),
    }
    const found = Object.hasOwn(known, route) ? known[route as keyof typeof known] : undefined
    response.writeHead(found === undefined ? 404 : 200, { 'content-type': 'application/json' })
    response.end(JSON.stringify(found?.() ?? {}))
  }
  const server = createServer((request, response) => {
    if (options.control === true && request.url?.startsWith('/.vendor/') === true) control(request, response)
    else answer(request, response, ledger, options)
  })
  return {
    listen: () =>
      new Promise((resolve, reject) => {
        server.once('error', reject)
        server.listen(options.port ?? 0, '127.0.0.1', 4_096, () => {
          server.off('error', reject)
          resolve(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
        })
      }),
    arrivals: () => ledger.arrivals,
    report,
    wipe,
    close: async () => {
      await stop(server)
      ledger.close()
    },
  }
}

import type { Agent, Dispatcher } from 'undici'
import { caughtUpMs, type Clock, type Moment } from '../core/clock.ts'
import type { StreamBody } from './body.ts'
import type { WayMeter } from '../limits/samples.ts'

/** Permission to make one request, until a monotonic time in ms. */
export interface Grant {
  readonly deadlineMs: number
  /**
   * A moment before the grant was requested: what the monotonic clock misses from then on counts, too. Default: it misses
   * nothing.
   */
  readonly requestedAt?: Moment | undefined
  /** Called when a request written under the grant is over: its response is complete, or never will be. */
  ended?(): void
  /** Called just before a request is written with how long the grant lives on, in ms; not above 0: it is not written. */
  checked?(leftMs: number): void
  way?: WayMeter | undefined
}

/** The reason why a request was not written, or not repeated. Never reaches a handler. */
class SendCheckError extends Error {}

/** The way of one request to the socket, and what happened to its grant. */
export interface SendCheck {
  readonly dispatcher: Dispatcher
  /**
   * The grant that expired before the first byte of the request, if it did: nothing was sent under it, so it may be refunded, and
   * the connection is kept.
   */
  readonly unused: () => Grant | undefined
  /** True once a part of the request was written. */
  readonly isWritten: () => boolean
}

/**
 * The parameters of a check. `take` is called when the HTTP layer repeats a request by itself (421), which is one more arrival.
 */
export interface SendCheckOptions {
  readonly agent: Agent
  readonly clock: Clock
  /** Undefined: nothing limits the request. */
  readonly grant: Grant | undefined
  readonly bytes: Buffer | undefined
  readonly stream?: StreamBody | undefined
  readonly take: () => Promise<Grant | undefined>
}

type Handler = Required<
  Pick<
    Dispatcher.DispatchHandler,
    'onRequestStart' | 'onRequestUpgrade' | 'onResponseStart' | 'onResponseData' | 'onResponseEnd' | 'onResponseError'
  >
>

/** Returns a handler that passes everything on. */
function passThrough(to: Handler): Handler {
  return {
    onRequestStart: (...args) => to.onRequestStart(...args),
    onRequestUpgrade: (...args) => to.onRequestUpgrade(...args),
    onResponseStart: (...args) => to.onResponseStart(...args),
    onResponseData: (...args) => to.onResponseData(...args),
    onResponseEnd: (...args) => to.onResponseEnd(...args),
    onResponseError: (...args) => to.onResponseError(...args),
  }
}

/** Returns a handler that measures how long the answer takes, from the call of `recordWritten`, which calls `begun`, to its head. */
function timeAnswer(handler: Handler, way: WayMeter | undefined, clock: Clock, begun: () => void) {
  if (way === undefined) return { handler, recordWritten: begun }
  let sinceMs: number | undefined
  const over = new AbortController()
  const recordAnswer = (isKnown: boolean) => {
    over.abort()
    if (sinceMs !== undefined) way.recordAnswer(isKnown ? clock.monotonicMs() - sinceMs : undefined)
    sinceMs = undefined
  }
  const watch = async (fromMs: number) => {
    for (let ms = way.overdueMs(); ms !== undefined; ms = way.overdueMs()) {
      await clock.sleep(Math.max(1, fromMs + ms - clock.monotonicMs()), over.signal, false)
      if (over.signal.aborted) return
      way.recordOverdue(clock.monotonicMs() - fromMs)
    }
  }
  const recordWritten = () => {
    begun()
    sinceMs = clock.monotonicMs()
    void watch(sinceMs)
  }
  const measured: Handler = {
    ...passThrough(handler),
    onResponseStart(controller, status, ...args) {
      // An informational answer (100 to 199) may come from a proxy before the request has arrived.
      if (status >= 200) recordAnswer(true)
      handler.onResponseStart(controller, status, ...args)
    },
    onResponseError(...args) {
      recordAnswer(false)
      handler.onResponseError(...args)
    },
  }
  return { handler: measured, recordWritten }
}

/**
 * Returns the body to dispatch: bytes are written together with the head; an iterator would be read first, and the head would
 * wait for it. `begin` is called before the first part of a stream, with which the head is written.
 */
function bodyFor({ bytes, stream }: SendCheckOptions, body: unknown, begin: () => void): unknown {
  if (bytes !== undefined || body === null) return bytes ?? null
  return checkBody(body, () => {
    // undici ends a body whose source has failed like any other.
    if (stream?.failure !== undefined) throw new SendCheckError('the source of the body has failed')
    begin()
  })
}

/**
 * Intercepts requests between `fetch` and the sockets. undici calls `onRequestStart` when a socket is connected and free,
 * and, unless that throws, writes the request in the same turn. Throwing (not aborting: that would destroy the
 * connection) drops the request unsent and keeps the socket, so that the next try finds it open.
 */
export function createSendCheck(options: SendCheckOptions): SendCheck {
  const { agent, clock, bytes } = options
  let dispatched = false
  let isWritten = false
  let unused: Grant | undefined
  const checkLife = (grant: Grant | undefined, what: string) => {
    if (grant === undefined) return
    const leftMs = grant.deadlineMs - caughtUpMs(clock, grant.requestedAt)
    grant.checked?.(leftMs)
    if (leftMs > 0) return
    unused = grant
    throw new SendCheckError(`the grant ran out before ${what}`)
  }

  const start =
    (dispatch: Dispatcher['dispatch'], grant: Grant | undefined) =>
    (request: Dispatcher.DispatchOptions, inner: Handler): boolean => {
      const { handler, recordWritten } = timeAnswer(inner, grant?.way, clock, () => (isWritten = true))
      let started = false
      let failed = false
      const guarded: Handler = {
        ...passThrough(handler),
        onRequestStart(controller, context) {
          // A second start of one dispatch is the HTTP layer's own repeat after a lost connection, which is not allowed
          // here.
          if (started) throw new SendCheckError('the connection was lost after the request had been written')
          checkLife(grant, 'the request was written')
          started = true
          if (bytes !== undefined || request.body === null) recordWritten()
          handler.onRequestStart(controller, context)
        },
        onResponseEnd(...args) {
          grant?.ended?.()
          handler.onResponseEnd(...args)
        },
        onResponseError(controller, error) {
          if (failed) return
          failed = true
          if (started && unused === undefined) grant?.ended?.()
          handler.onResponseError(controller, error)
        },
      }
      const body = bodyFor(options, request.body, () => {
        checkLife(grant, 'the first part of the body was there')
        recordWritten()
      })
      return dispatch({ ...request, body: body as NonNullable<typeof request.body> }, guarded)
    }

  const interceptor =
    (dispatch: Dispatcher['dispatch']): Dispatcher['dispatch'] =>
    (request, handler) => {
      if (!dispatched) {
        dispatched = true
        return start(dispatch, options.grant)(request, handler as Handler)
      }
      options.take().then(
        (grant) => start(dispatch, grant)(request, handler as Handler),
        (error: unknown) => (handler as Handler).onResponseError(undefined as never, error as Error),
      )
      return true
    }
  return {
    dispatcher: agent.compose(interceptor),
    unused: () => unused,
    isWritten: () => isWritten,
  }
}

const warmed = new SendCheckError('only a connection was wanted')

/** Opens a connection to `origin`. Resolves when it is free, or could not be made. Sends nothing; never rejects. */
function openConnection(agent: Agent, origin: string): Promise<void> {
  return new Promise((resolve) => {
    const handler: Handler = {
      onRequestStart() {
        throw warmed
      },
      onRequestUpgrade() {},
      onResponseStart() {},
      onResponseData() {},
      onResponseEnd: () => resolve(),
      onResponseError: () => resolve(),
    }
    agent.dispatch({ origin, path: '/', method: 'GET' }, handler)
  })
}

/** How often a connection that is kept for a coming request is checked, in ms. */
const warmEveryMs = 250

/**
 * Waits for `taking` and keeps a connection to `origin` open meanwhile. Where connecting takes longer than the life of a
 * grant, a request whose grants are rare would otherwise never be sent.
 */
export async function keepWarm<T>(agent: Agent, origin: string, clock: Clock, taking: Promise<T>): Promise<T> {
  const taken = new AbortController()
  const failed = new Promise<void>((resolve) => void taking.catch(resolve))
  void taking.catch(() => {}).finally(() => taken.abort())
  while (!taken.signal.aborted) {
    await clock.sleep(warmEveryMs, taken.signal)
    // A connection in progress is awaited even when the grant is there: a second one would be ready later.
    if (!taken.signal.aborted) await Promise.race([openConnection(agent, origin), failed])
  }
  return taking
}

/** A streamed body. `check` runs before its first part, because undici writes the head together with that part. */
async function* checkBody(body: unknown, check: () => void): AsyncGenerator<Uint8Array> {
  const source = (body as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]()
  let open = true
  try {
    for (let first = true; ;) {
      const { done, value } = await source.next()
      if (done === true) open = false
      if (first && (done === true || value.byteLength > 0)) {
        first = false
        check()
      }
      if (done === true) return
      yield value
    }
  } finally {
    // Unlike in `for await` it is not awaited: the source may be waiting for the very request that is being given up.
    if (open) source.return?.().catch(() => {})
  }
}

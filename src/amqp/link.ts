/** A connection that is opened again whenever it is lost, until it is closed. */
import { systemClock } from '../core/clock.ts'
import { StoreError, UsageError } from '../core/errors.ts'
import { span } from '../core/figures.ts'
import type { Log } from '../core/log.ts'
import { retryPauseMs } from '../core/retry.ts'
import type { BrokerAddress } from './address.ts'
import { openSession, type Session } from './session.ts'

/** The purpose of a link. */
export interface Purpose {
  address: BrokerAddress
  /** In the server's tools and in the log. */
  name: string
  log: Log
  /** Prepares a new connection before others use it. If it rejects, the connection is given up, and another one opened. */
  onUp(session: Session): Promise<void>
  /** The connection was lost. */
  onDown(cause: Error): void
}

/** A connection that was lost sooner counts as another failed attempt. */
const steadyMs = 5_000
const warnEveryMs = 60_000

/** A supervised connection. */
export class Link {
  readonly #purpose: Purpose
  readonly #stop = new AbortController()
  #session: Session | undefined
  #waiters: (() => void)[] = []
  #cause: Error | undefined
  #lostAtMs: number | undefined
  #warnedAtMs = -Infinity
  #kept: Promise<void> | undefined

  constructor(purpose: Purpose) {
    this.#purpose = purpose
  }

  /** The time since which there is no connection, in monotonic ms. */
  get lostAtMs(): number | undefined {
    return this.#lostAtMs
  }

  /**
   * Opens it for the first time, to the first of the servers that is there; from then on it is kept open. `isPatient`: with no server
   * there it resolves all the same, and goes on trying. @throws SluiceError if that fails now
   */
  async open(isPatient = false): Promise<void> {
    try {
      this.#kept = this.#keep(await this.#openFirst())
    } catch (error) {
      if (!isPatient || !(error instanceof StoreError)) throw error
      this.#lostAtMs = systemClock.monotonicMs()
      this.#warn(error)
      this.#kept = this.#keep(undefined)
    }
  }

  async #openFirst(): Promise<Session> {
    const { address, name } = this.#purpose
    for (let nth = 0; ; nth++) {
      try {
        const session = await openSession(address, name, nth)
        await this.#prepare(session).catch(async (error: unknown) => {
          await session.end()
          throw error
        })
        return session
      } catch (error) {
        if (nth + 1 >= address.hosts.length || error instanceof UsageError) throw error
      }
    }
  }

  /** Resolves to the open connection, waiting for it if need be. @throws StoreError SLUICE_BROKER_UNREACHABLE after `withinMs` */
  async waitUntilOpen(withinMs = Infinity): Promise<Session> {
    const untilMs = systemClock.monotonicMs() + withinMs
    while (this.#session === undefined) {
      const leftMs = untilMs - systemClock.monotonicMs()
      if (leftMs <= 0 || this.#stop.signal.aborted) throw this.unreachableError()
      await new Promise<void>((resolve) => {
        const cancel = leftMs === Infinity ? undefined : systemClock.after(leftMs, resolve)
        this.#waiters.push(() => {
          cancel?.()
          resolve()
        })
      })
    }
    return this.#session
  }

  /** The error of an operation that found no connection. */
  unreachableError(): StoreError {
    const why = this.#stop.signal.aborted ? 'it is closed' : (this.#cause?.message ?? 'it is not open yet')
    return new StoreError('SLUICE_BROKER_UNREACHABLE', `there is no connection to RabbitMQ: ${why}`)
  }

  /** Closes it for good. */
  async close(): Promise<void> {
    this.#stop.abort()
    this.#wake()
    await this.#session?.end()
    await this.#kept
  }

  async #keep(first: Session | undefined): Promise<void> {
    let session: Session | undefined = first
    for (let failures = 0; ;) {
      const sinceMs = systemClock.monotonicMs()
      if (session !== undefined) this.#recordLoss(await session.lost)
      if (systemClock.monotonicMs() - sinceMs > steadyMs) failures = 0
      if (this.#stop.signal.aborted) return
      await systemClock.sleep(retryPauseMs(failures++, systemClock.random(), 50), this.#stop.signal)
      if (this.#stop.signal.aborted) return
      session = await this.#reopen(failures).catch((error: Error) => {
        this.#warn(error)
        return undefined
      })
    }
  }

  async #reopen(nth: number): Promise<Session> {
    const { address, name, log } = this.#purpose
    const session = await openSession(address, name, nth)
    try {
      await this.#prepare(session)
    } catch (error) {
      session.drop(error as Error)
      throw error
    }
    const forMs = systemClock.monotonicMs() - (this.#lostAtMs ?? systemClock.monotonicMs())
    this.#lostAtMs = undefined
    log.info(`the connection to RabbitMQ (${name}) is back after ${span(forMs)}`, { forMs: Math.round(forMs) })
    return session
  }

  async #prepare(session: Session): Promise<void> {
    const lost = session.lost.then((cause) => Promise.reject(cause))
    lost.catch(() => {})
    await Promise.race([this.#purpose.onUp(session), lost])
    if (this.#stop.signal.aborted) throw this.unreachableError()
    this.#session = session
    this.#wake()
  }

  #recordLoss(cause: Error): void {
    this.#session = undefined
    this.#lostAtMs = systemClock.monotonicMs()
    this.#purpose.onDown(cause)
    if (!this.#stop.signal.aborted) this.#warn(cause)
  }

  /** At once, and then once a minute, while there is no connection. */
  #warn(cause: Error): void {
    this.#cause = cause
    const nowMs = systemClock.monotonicMs()
    if (nowMs - this.#warnedAtMs < warnEveryMs) return
    this.#warnedAtMs = nowMs
    this.#purpose.log.warn(`no connection to RabbitMQ (${this.#purpose.name}): ${cause.message}; trying again`)
  }

  #wake(): void {
    for (const waiter of this.#waiters.splice(0)) waiter()
  }
}

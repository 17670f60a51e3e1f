/**
 * Repeats the request for a grant until one arrives that is fresh enough to be used. Attempts, for further requests, and
 * takers use the same loop.
 */
import type { Clock, Moment } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'
import { retryPauseMs } from '../core/retry.ts'
import { isTransient } from '../claim/claim.ts'

/** A grant to request. After a lost reply it is requested again under the same id, so that it is charged once. */
export interface PendingGrant {
  readonly id: string
  /** The holder that first requested it: a place that the store granted then belongs to this holder. */
  readonly holder?: string
  /** When the first request was sent: the store may have granted it then. */
  requestedAt?: Moment
  /** A reply was lost. */
  isRepeat?: boolean
}

/** Result of one request: a grant, or how long to wait. */
export interface GrantResult<G> {
  readonly grant?: G
  /** When nothing was granted: no grant will be available within this many ms; default 0. */
  readonly soonestMs?: number
  /** When nothing was granted: after how many ms the request can be repeated; default 0. */
  readonly waitMs?: number
  /** When nothing was granted: when the request was sent, in monotonic ms; default: not known. */
  readonly sentMs?: number
  /** When nothing was granted: the taker's place in the line; default infinity: it has none. */
  readonly place?: number
  /** A grant that has to be refunded, because the store granted it and the second limiter did not. */
  readonly unused?: G
  /** Names of the buckets that denied it; default: all. */
  readonly lacking?: readonly string[]
}

/** How jobs and takers differ in the loop of `repeatUntilGranted`. */
export interface GrantLoop<G> {
  /** The loop fails from then on, in monotonic ms. */
  readonly untilMs: number
  /** How long requests are repeated while the store does not reply, in ms. */
  readonly awayMs: number
  /** True if a refund may be repeated when the reply to the first one was lost. */
  readonly givesBackAgain: boolean
  newGrant(): PendingGrant
  /** Sends one request. */
  request(pending: PendingGrant, back: G | undefined): Promise<GrantResult<G>>
  isFresh(grant: G): boolean
  /** Waits before the next request. An error that it throws ends the loop. */
  wait(ms: number): Promise<void>
  /**
   * Called when a grant was too old on arrival, the n-th in a row since `sinceMs`; the grant is refunded. An error that
   * it throws ends the loop.
   */
  onLate(grant: G, n: number, sinceMs: number): void
  /** Returns the error that the loop fails with after `untilMs`. */
  createTimeoutError(soonestMs: number): Error
  /** Called when the loop has failed. `back` is not refunded yet. */
  onFailed(back: G | undefined): Promise<void>
}

/** Runs a loop; resolves to the grant. `unused` is refunded with the first request. */
export async function repeatUntilGranted<G>(
  clock: Clock,
  loop: GrantLoop<G>,
  unused: G | undefined,
  signal: AbortSignal | undefined,
): Promise<G> {
  const requests = new Requests(clock, loop, unused)
  let sinceMs: number | undefined
  try {
    for (let late = 0; ;) {
      const { grant, soonestMs = 0, waitMs = 0 } = await requests.sendNext(signal)
      if (grant === undefined) {
        if (soonestMs > requests.leftMs) throw loop.createTimeoutError(soonestMs)
        await loop.wait(Math.min(waitMs, Math.max(1, requests.leftMs)))
        if (requests.leftMs <= 0) throw loop.createTimeoutError(soonestMs)
        continue
      }
      if (loop.isFresh(grant)) return grant
      sinceMs ??= clock.monotonicMs()
      loop.onLate(grant, ++late, sinceMs)
      // This process is too busy to receive a grant in time. If it repeated the request at once, it would stay busy.
      await clock.sleep(clock.random() * Math.min(1_000, 50 * 2 ** late), signal)
    }
  } catch (error) {
    await loop.onFailed(requests.back)
    throw error
  }
}

/** The requests of one loop. */
class Requests<G> {
  /** A grant that the next request refunds. */
  back: G | undefined
  readonly #clock: Clock
  readonly #loop: GrantLoop<G>
  #pending: PendingGrant | undefined
  /** The time since which the store does not reply, in monotonic ms. */
  #awaySinceMs: number | undefined

  constructor(clock: Clock, loop: GrantLoop<G>, back: G | undefined) {
    this.#clock = clock
    this.#loop = loop
    this.back = back
  }

  /** How many ms of the loop's time are left. */
  get leftMs(): number {
    return this.#loop.untilMs - this.#clock.monotonicMs()
  }

  /** Sends the next request, again and again until the store answers it. */
  async sendNext(signal: AbortSignal | undefined): Promise<GrantResult<G>> {
    for (let tries = 0; ; tries++) {
      signal?.throwIfAborted()
      const pending = (this.#pending ??= this.#loop.newGrant())
      try {
        const result = await this.#loop.request(pending, this.back)
        this.#pending = this.#awaySinceMs = undefined
        this.back = result.grant ?? result.unused
        return result
      } catch (error) {
        this.#prepareRepeat(pending, error)
      }
      const pauseMs = retryPauseMs(tries, this.#clock.random())
      await this.#clock.sleep(this.leftMs > 0 ? Math.min(pauseMs, this.leftMs) : pauseMs, signal)
    }
  }

  /** Prepares the repetition of a request that has failed with this error. @throws the error that ends the loop */
  #prepareRepeat(pending: PendingGrant, error: unknown): void {
    if (isTransient(error)) {
      // The store is available but busy; nothing was done.
      if (this.leftMs <= 0) throw this.#loop.createTimeoutError(0)
      this.#awaySinceMs = undefined
      if (pending.isRepeat !== true) this.#pending = undefined
      return
    }
    if (!(error instanceof StoreError) || error.code === 'SLUICE_CLOSED') throw error
    this.#awaySinceMs ??= this.#clock.monotonicMs()
    if (this.#clock.monotonicMs() - this.#awaySinceMs > this.#loop.awayMs) throw error
    pending.isRepeat = true
    // It is unknown whether the refund was carried out.
    if (!this.#loop.givesBackAgain) this.back = undefined
  }
}

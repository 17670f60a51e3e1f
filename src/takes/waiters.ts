/** Takes that wait in this process and wake when units are given back. */
import type { Clock } from '../core/clock.ts'
import { RecentMap } from '../core/recent-map.ts'
import type { Db } from '../db/db.ts'

/** A take that was denied; see the fields. */
export interface Denied {
  /** The take, the same each time that it waits. */
  readonly who: string
  /** The buckets that denied it, as notifications name them. */
  readonly buckets: readonly string[]
  /** When its request was sent, in monotonic ms: it may have been decided before any later notification. */
  readonly sentMs: number
  /** Its place in the line; infinity: it has none. */
  readonly place: number
}

/** How many buckets are remembered for which a notification came. */
const noticedMax = 10_000

/** One wait of a take, until `over` is aborted. */
interface Nap {
  readonly who: string
  readonly place: number
  readonly over: AbortController
}

/** The waiters of each bucket. */
export class Waiters {
  readonly #db: Db
  readonly #channel: string
  readonly #clock: Clock
  /** When the newest notification came, by bucket, in monotonic ms. */
  readonly #noticedMs = new RecentMap<string, number>(noticedMax)
  readonly #naps = new Map<string, Set<Nap>>()
  /**
   * The take that was woken last, by bucket, until it waits again. If it gets a grant, the next one is woken; if it is
   * denied, none is.
   */
  readonly #woken = new Map<string, string>()
  #listening: Promise<(() => Promise<void>) | undefined> | undefined
  #isClosed = false

  constructor(db: Db, channel: string, clock: Clock) {
    this.#db = db
    this.#channel = channel
    this.#clock = clock
  }

  /**
   * Resolves after `ms`, when one of the buckets wakes this one, or when `signal` is aborted; at once, to true, if units
   * were given back while the request was under way.
   */
  async wait({ who, buckets, sentMs, place }: Denied, ms: number, signal?: AbortSignal): Promise<boolean> {
    if (this.#isClosed) return false
    // Without notifications the waiters only try again a little later.
    const wakeAll = () => [...this.#naps.keys()].forEach((bucket) => this.#wake(bucket))
    const onNotice = (bucket: string) => {
      this.#noticedMs.set(bucket, this.#clock.monotonicMs())
      this.#wake(bucket)
    }
    this.#listening ??= this.#db.listen(this.#channel, onNotice, wakeAll).then(
      (stop) => {
        // A connection that stood already receives this channel only from now on. A new one calls `wakeAll` itself.
        if (this.#db.listening()) wakeAll()
        return stop
      },
      () => undefined,
    )
    if (buckets.some((bucket) => (this.#noticedMs.get(bucket) ?? -Infinity) >= sentMs)) return true
    const nap = { who, place, over: new AbortController() }
    for (const bucket of buckets) {
      this.#naps.set(bucket, (this.#naps.get(bucket) ?? new Set()).add(nap))
      if (this.#woken.get(bucket) === who) this.#woken.delete(bucket)
    }
    const end = () => nap.over.abort()
    signal?.addEventListener('abort', end, { once: true })
    await this.#clock.sleep(signal?.aborted ? 0 : ms, nap.over.signal)
    signal?.removeEventListener('abort', end)
    for (const bucket of buckets) {
      const naps = this.#naps.get(bucket)
      naps?.delete(nap)
      if (naps?.size === 0) this.#naps.delete(bucket)
    }
    return false
  }

  /**
   * Wakes the next waiter of each of these buckets, because there may be more room: the waiter that was woken got its
   * grant.
   */
  next(buckets: readonly string[]): void {
    for (const bucket of buckets) if (this.#woken.has(bucket)) this.#wake(bucket)
  }

  /** Wakes all waiters, and stops listening. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const naps of this.#naps.values()) for (const { over } of naps) over.abort()
    const stop = await this.#listening
    await stop?.().catch(() => {})
  }

  #wake(bucket: string): void {
    let first: Nap | undefined
    // The others have to leave room for it. Each retries now and then, so they stand here in any order.
    for (const nap of this.#naps.get(bucket) ?? []) if (first === undefined || nap.place < first.place) first = nap
    if (first === undefined) return void this.#woken.delete(bucket)
    this.#woken.set(bucket, first.who)
    first.over.abort()
  }
}

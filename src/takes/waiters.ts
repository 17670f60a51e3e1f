/** Takes that wait in this process: until units are given back, or for the instant of a grant ahead of time. */
import { readCallBack } from '../claim/ahead-jobs.ts'
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

/** A grant ahead of time; see the fields. */
export interface AheadGrant {
  /** Names of its buckets. */
  readonly buckets: readonly string[]
  /** When it was requested, in monotonic ms. */
  readonly requestedMs: number
  /** Monotonic ms before which it may not be used; undefined: it may be used at once. */
  readonly atMs: number | undefined
}

/** How long a call-back is remembered, in ms: no grant whose request takes longer has an instant that is still to come. */
const keptMs = 5_000

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
  readonly #ahead = new Map<AheadGrant, AbortController>()
  #callBacks: { atMs: number; isConcerned: (grant: AheadGrant) => boolean }[] = []
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
    this.#listen()
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
   * Waits for the instant of a grant ahead of time. Resolves to false, at once, if the grant is called back before
   * (`limits/takers/call_back_grants_ahead.sql`), or `signal` is aborted.
   */
  async waitForInstant(grant: AheadGrant, signal?: AbortSignal): Promise<boolean> {
    const { requestedMs, atMs } = grant
    if (atMs === undefined || atMs <= this.#clock.monotonicMs()) return true
    this.#listen()
    const over = new AbortController()
    const end = () => over.abort()
    signal?.addEventListener('abort', end, { once: true })
    const isCalledBack = this.#callBacks.some((call) => requestedMs <= call.atMs && call.isConcerned(grant))
    if (this.#isClosed || signal?.aborted === true || isCalledBack) end()
    this.#ahead.set(grant, over)
    for (let ms; !over.signal.aborted && (ms = atMs - this.#clock.monotonicMs()) > 0;)
      await this.#clock.sleep(Math.ceil(ms), over.signal)
    this.#ahead.delete(grant)
    signal?.removeEventListener('abort', end)
    return !over.signal.aborted
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
    for (const over of this.#ahead.values()) over.abort()
    const stop = await this.#listening
    await stop?.().catch(() => {})
  }

  #listen(): void {
    const onNotice = (notice: string) => {
      const isConcerned = readCallBack(notice)
      if (isConcerned !== undefined)
        return this.#callBack(({ buckets }) => isConcerned({ id: '', buckets: [...buckets] }))
      this.#noticedMs.set(notice, this.#clock.monotonicMs())
      this.#wake(notice)
    }
    // Without notifications the waiters only try again a little later, and grants ahead may have been called back.
    const wakeAll = () => {
      this.#callBack(() => true)
      ;[...this.#naps.keys()].forEach((bucket) => this.#wake(bucket))
    }
    this.#listening ??= this.#db.listen(this.#channel, onNotice, wakeAll).then(
      (stop) => {
        // A connection that stood already receives this channel only from now on. A new one calls `wakeAll` itself.
        if (this.#db.listening()) wakeAll()
        return stop
      },
      () => (this.#listening = undefined),
    )
  }

  #callBack(isConcerned: (grant: AheadGrant) => boolean): void {
    const atMs = this.#clock.monotonicMs()
    this.#callBacks = [...this.#callBacks.filter((call) => call.atMs > atMs - keptMs), { atMs, isConcerned }]
    for (const [grant, over] of this.#ahead) if (isConcerned(grant)) over.abort()
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

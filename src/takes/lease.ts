/** One grant outside of jobs. */
import { caughtUpMs, type Clock, type Moment } from '../core/clock.ts'
import type { WayMeter } from '../limits/samples.ts'
import type { Lease, Used } from '../limits/take.ts'
import type { LeaseHolder } from './lease-holder.ts'
import { type TakeRequest, usedUnits } from './take-request.ts'

/** Parameters of `TakenGrant`; see the fields. */
export interface LeaseOptions {
  readonly id: string
  /** The request that was granted. */
  readonly want: TakeRequest
  readonly clock: Clock
  readonly holder: LeaseHolder
  /** A request may begin under the grant until then, in monotonic ms. */
  readonly deadlineMs: number
  /** How long the grant lives, in ms. */
  readonly lifeMs: number
  /** The time just before it was requested. */
  readonly requestedAt: Moment | undefined
  /** True if it holds a place of a concurrency. */
  readonly hasPlace: boolean
  /** True if the store was away and charged nothing (`onStoreError: 'open'`). */
  readonly isUncharged: boolean
  /** The vendor has refused requests before: this one shows whether it accepts them again. */
  readonly isTrial: boolean
  /** The taker's place in the line; infinity: it was not in a line. */
  readonly place: number
  /** Called with the age at which the grant is about to be used, in ms; `isLate`: it is too old for that. */
  recordAge(ageMs: number, isLate: boolean): void
  /** Measures the way of the grant's one request, as `Grant.way`. */
  readonly way: WayMeter
  /** Called when the grant has ended. */
  onEnd(): void
  /** Called when the grant goes back unused. */
  refund(lease: TakenGrant): void
  /** Called with the difference between the units used of a bucket and those charged, before the store is informed. */
  settled(lease: TakenGrant, bucket: string, more: number): void
}

/** A grant that was taken. */
export class TakenGrant implements Lease {
  readonly id: string
  readonly isUncharged: boolean
  readonly isTrial: boolean
  /** The grant's id in Redis, if the limit is shared there. */
  peerGrant: string | undefined
  #deadlineMs: number
  readonly #options: LeaseOptions
  /** Created only on access, because most leases last for one request and nothing reads their signal. */
  #controller: AbortController | undefined
  #lost: Error | undefined
  #onLost: ((reason: Error) => void) | undefined
  #isOver = false
  /** Limits that are settled, by their place in the request. */
  readonly #settled = new Set<number>()
  /** The differences that were reported by `settled`, so that each is reported once, however often the store is called. */
  readonly #more = new Map<number, number>()
  #isReported = false

  constructor(options: LeaseOptions) {
    this.#options = options
    this.id = options.id
    this.#deadlineMs = options.deadlineMs
    this.isUncharged = options.isUncharged
    this.isTrial = options.isTrial
  }

  get deadlineMs(): number {
    const isLost = this.#lost !== undefined || (this.#options.hasPlace && this.#options.holder.isOver)
    return isLost ? -Infinity : this.#deadlineMs
  }

  get requestedAt(): Moment | undefined {
    return this.#options.requestedAt
  }

  /** Records the id of the grant in Redis, and until when a request may begin, in monotonic ms. */
  recordConfirmed(id: string, deadlineMs: number): void {
    this.peerGrant = id
    this.#deadlineMs = deadlineMs
  }

  get freshForMs(): number {
    return Math.max(0, this.deadlineMs - caughtUpMs(this.#options.clock, this.requestedAt))
  }

  checked(leftMs: number): void {
    const { lifeMs } = this.#options
    if (Number.isFinite(lifeMs)) this.#options.recordAge(lifeMs - leftMs, leftMs <= 0)
  }

  get way(): WayMeter {
    return this.#options.way
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController()
    if (this.#lost !== undefined) this.#controller.abort(this.#lost)
    return this.#controller.signal
  }

  /** Ends the lease because its place is lost. */
  lose(reason: Error): void {
    if (this.#isOver) return
    this.#lost = reason
    this.#options.onEnd()
    this.#controller?.abort(reason)
    this.#onLost?.(reason)
  }

  /** Calls `onLost` when the place is lost: an abort of `signal` without the cost of a signal. */
  whenLost(onLost: (reason: Error) => void): void {
    this.#onLost = onLost
  }

  /** Releases the lease after its request, without waiting for the store. */
  ended(): void {
    void this.release()
  }

  async release(): Promise<void> {
    if (this.#options.hasPlace) await this.#end(false)
    this.#isOver = true
  }

  async giveBack(): Promise<void> {
    if (!this.isUncharged) await this.#end(true)
  }

  async settle(used: Used): Promise<void> {
    await this.settleUnits(usedUnits(this.#options.want.limits, used))
  }

  /**
   * Settles units of each limit, as `settle`; undefined: as charged, or settled before. If the call fails, it may be
   * repeated.
   */
  async settleUnits(units: readonly (number | undefined)[]): Promise<void> {
    const { want, settled, holder } = this.#options
    const open = units.flatMap((used, i) => {
      const [limit, bucket, took] = [want.limits[i], want.buckets[i] ?? '', want.costs[i] ?? 1]
      if (limit === undefined || used === undefined || this.isUncharged || this.#settled.has(i)) return []
      return [{ i, bucket, took, used, isFull: limit.refund === 'full' }]
    })
    for (const { i, bucket, took, used } of open) {
      settled(this, bucket, used - took - (this.#more.get(i) ?? 0))
      this.#more.set(i, used - took)
      this.#settled.add(i)
    }
    if (open.length === 0) return
    try {
      await holder.settle(this.id, open)
    } catch (error) {
      for (const { i } of open) this.#settled.delete(i)
      throw error
    }
  }

  /** Units that were charged of each limit. */
  get charged(): readonly number[] {
    return this.#options.want.costs
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }

  /** The units that go back if the grant was not used; at least 1, for its place. */
  get units(): number[] {
    return this.#options.want.costs.map((cost) => Math.max(1, cost))
  }

  /** The taker's place in the line, which the next take of the same request gets. */
  get place(): number {
    return this.#options.place
  }

  /** Reports the grant to Redis as unused, once. Call it before the store gets the units back. */
  reportUnused(): void {
    if (!this.#isReported) this.#options.refund(this)
    this.#isReported = true
  }

  /** Ends the lease in this process only, because the next take gives it back in the same statement. */
  handOver(): void {
    this.#isOver = true
    this.#options.onEnd()
    this.#options.holder.forget(this.id)
  }

  async #end(unused: boolean): Promise<void> {
    if (this.#isOver) return
    this.#isOver = true
    this.#options.onEnd()
    if (unused) this.reportUnused()
    const { buckets, costs } = this.#options.want
    await this.#options.holder.end(this.id, buckets, unused ? costs : buckets.map(() => 0))
  }
}

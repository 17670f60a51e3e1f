/** One grant outside of jobs, in the hands of whoever asked for it. */
import { caughtUpMs, type Clock, type Moment } from '../core/clock.ts'
import type { Lease } from '../limits/taker.ts'
import type { Holder } from './holder.ts'

/** What a lease is made of. */
export interface LeaseOptions {
  readonly id: string
  /** The bucket's name. */
  readonly take: string
  readonly cost: number
  readonly clock: Clock
  readonly holder: Holder
  /** A request may begin under it until then, in monotonic ms. */
  readonly deadlineMs: number
  readonly asked: Moment | undefined
  readonly hasPlace: boolean
  readonly isUncharged: boolean
  /** Where it stood in the line; null: nowhere. */
  readonly place: string | null
  /** Told when it has ended. */
  over(): void
  /** Told when it goes back unused. */
  unused(lease: Taken): void
}

/** A grant that was taken. */
export class Taken implements Lease {
  readonly id: string
  readonly isUncharged: boolean
  /** As those know it who share the limit. */
  shared: string | undefined
  #deadlineMs: number
  readonly #options: LeaseOptions
  /** Made only when asked for: most leases last for one request, and nobody asks. */
  #controller: AbortController | undefined
  #lost: Error | undefined
  #tell: ((reason: Error) => void) | undefined
  #isOver = false
  #isTold = false

  constructor(options: LeaseOptions) {
    this.#options = options
    this.id = options.id
    this.#deadlineMs = options.deadlineMs
    this.isUncharged = options.isUncharged
  }

  get deadlineMs(): number {
    return this.#options.hasPlace && this.#options.holder.isOver ? -Infinity : this.#deadlineMs
  }

  get asked(): Moment | undefined {
    return this.#options.asked
  }

  /** Those who share the limit have agreed, under this id: a request may begin until then. */
  agreed(id: string, deadlineMs: number): void {
    this.shared = id
    this.#deadlineMs = deadlineMs
  }

  get freshForMs(): number {
    return Math.max(0, this.deadlineMs - caughtUpMs(this.#options.clock, this.asked))
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController()
    if (this.#lost !== undefined) this.#controller.abort(this.#lost)
    return this.#controller.signal
  }

  /** Its place is gone. */
  lose(reason: Error): void {
    if (this.#isOver) return
    this.#lost = reason
    this.#options.over()
    this.#controller?.abort(reason)
    this.#tell?.(reason)
  }

  /** As an abort of its signal, without the cost of one. */
  whenLost(tell: (reason: Error) => void): void {
    this.#tell = tell
  }

  /** As `release`, for a request that is over. */
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

  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }

  /** What goes back of it when it was not used; of what has a place at least that. */
  get units(): number[] {
    return [Math.max(1, this.#options.cost)]
  }

  /** Where it stood in the line, for the one that takes its place. */
  get place(): string | null {
    return this.#options.place
  }

  /** Tells those who share the limit, once, that nothing was sent under it; to be done before the store is told. */
  tellUnused(): void {
    if (!this.#isTold) this.#options.unused(this)
    this.#isTold = true
  }

  /** It goes back with the next request to the store: nothing else is to be done about it. */
  handOver(): void {
    this.#isOver = true
    this.#options.over()
    this.#options.holder.forget(this.id)
  }

  async #end(unused: boolean): Promise<void> {
    if (this.#isOver) return
    this.#isOver = true
    this.#options.over()
    if (unused) this.tellUnused()
    await this.#options.holder.end(this.id, this.#options.take, unused ? this.#options.cost : 0)
  }
}

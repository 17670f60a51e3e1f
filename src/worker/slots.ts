/** The outlet in this process: a number of slots, each with one attempt. */
import type { Clock } from '../core/clock.ts'
import { reach } from '../core/probe.ts'
import type { Handout } from '../claim/claimed-job.ts'
import type { Finisher } from '../claim/finish/finish.ts'
import type { Outlet } from '../claim/outlet.ts'
import type { SharedLimits } from '../limits/peer.ts'
import { askFor } from './agree.ts'
import type { Attempt } from './attempt.ts'
import type { Stuck } from './stuck.ts'
import type { Throttle } from './throttle.ts'

/** Attempts may take so long to begin while more is asked for: a tenth of a grant's life, which is mostly 100 ms. */
const beginMsMax = 10

/** Runs up to `slots` attempts at once. */
export class Slots implements Outlet {
  readonly #slots: number
  readonly #finisher: Finisher
  readonly #attempt: (job: Handout) => Attempt
  readonly #back: () => void
  readonly #stuck: Stuck
  readonly #clock: Clock
  readonly #isStoreApart: boolean
  readonly #throttle: Throttle | undefined
  readonly #shared: SharedLimits | undefined
  readonly #running = new Set<Attempt>()
  readonly #waiters = new Set<() => void>()
  /** How long each of those that began last kept the process. */
  #beginMs = 0

  /**
   * @param back told when a job went back to the store, to be run again now or later
   * @param isStoreApart the store works in a process of its own, while this one does something else
   */
  constructor(
    slots: number,
    finisher: Finisher,
    attempt: (job: Handout) => Attempt,
    back: () => void,
    stuck: Stuck,
    clock: Clock,
    isStoreApart: boolean,
    throttle?: Throttle,
    shared?: SharedLimits,
  ) {
    this.#slots = slots
    this.#finisher = finisher
    this.#attempt = attempt
    this.#back = back
    this.#stuck = stuck
    this.#clock = clock
    this.#isStoreApart = isStoreApart
    this.#throttle = throttle
    this.#shared = shared
  }

  /** Jobs that were given back uncalled so far. */
  returned = 0

  /** Jobs that rules, or their handlers, put off so far. */
  putOff = 0

  /** Jobs that went back so far to wait for limits that they had not waited for, or that others had used up. */
  readmitted = 0

  /** Slots that are kept for jobs on their way. */
  kept = 0

  /** Attempts under way. */
  get running(): number {
    return this.#running.size
  }

  free(): number {
    return Math.min(this.#empty(), this.#most())
  }

  /** Attempts that the throttle lets begin. */
  #most(): number {
    return Math.max(0, (this.#throttle?.most() ?? Infinity) - this.kept)
  }

  /** Slots with nothing in them. */
  #empty(): number {
    if (this.#stuck.isTooMany) return 0
    // Endings wait for the store: when it is slow, no more than one round of them may pile up.
    const piled = Math.max(0, this.#finisher.backlog - this.#slots)
    return Math.max(0, this.#slots - this.#running.size - this.kept - piled)
  }

  keep(): (jobs: readonly Handout[]) => void {
    this.kept++
    return (jobs) => {
      this.kept--
      if (jobs.length > 0) this.start(jobs)
      this.look()
    }
  }

  freed(least: number, signal?: AbortSignal): Promise<void> {
    return this.#when(() => this.#isFree(least), signal)
  }

  /** Whether so many are free; where only the throttle is in the way, it is looked at again when it lets one more begin. */
  #isFree(least: number): boolean {
    const most = this.#most()
    const isEmpty = this.#empty() >= least
    if (isEmpty && most === 0) this.#throttle?.tell(() => this.look())
    return isEmpty && most >= least
  }

  /** Resolves when no attempt is under way, and none is on its way. */
  idle(): Promise<void> {
    return this.#when(() => this.#running.size + this.kept === 0)
  }

  #when(isTrue: () => boolean, signal?: AbortSignal): Promise<void> {
    if (isTrue() || signal?.aborted) return Promise.resolve()
    return new Promise((resolve) => {
      const look = () => {
        if (!isTrue() && !signal?.aborted) return
        this.#waiters.delete(look)
        signal?.removeEventListener('abort', look)
        resolve()
      }
      this.#waiters.add(look)
      signal?.addEventListener('abort', look)
    })
  }

  start(jobs: readonly Handout[]): void {
    const [most, empty] = [this.free(), this.#empty()]
    this.#throttle?.began(jobs.length, jobs.length >= most && most < empty)
    this.#finisher.opened(jobs)
    if (this.#shared !== undefined) askFor(jobs, this.#shared)
    const attempts = jobs.map((job) => this.#attempt(job))
    // All of them before the first begins: whatever that does at once, their slots are taken.
    for (const attempt of attempts) this.#running.add(attempt)
    // After the dispatcher has asked for more, and a store apart works on that meanwhile. But its answer is not heard before
    // these have begun: where they keep the process busy, what it grants would grow old. And a throttle counts from now on.
    if (!this.#isStoreApart || this.#throttle !== undefined || this.#isSlow(jobs)) this.#begin(attempts)
    else setImmediate(() => this.#begin(attempts))
  }

  /** True when to begin these would take a good part of a grant's life, as it took for the last ones. */
  #isSlow(jobs: readonly Handout[]): boolean {
    const mostMs = jobs.reduce((least, { grantUs }) => Math.min(least, (grantUs ?? Infinity) / 10_000), beginMsMax)
    return this.#beginMs * jobs.length > mostMs
  }

  #begin(attempts: readonly Attempt[]): void {
    if (attempts.length === 0) return
    const sinceMs = this.#clock.monotonicMs()
    for (const attempt of attempts) void this.#run(attempt)
    const began = () => (this.#beginMs = (this.#clock.monotonicMs() - sinceMs) / attempts.length)
    // With what handlers do after an `await` of what is there: the tick comes when no promise has anything left to do.
    queueMicrotask(() => process.nextTick(began))
  }

  /** The attempts under way now. */
  attempts(): readonly Attempt[] {
    return [...this.#running]
  }

  /** Gives up all attempts: their signals abort; what they still do is fenced off. */
  abandon(reason: Error): void {
    for (const attempt of this.#running) attempt.abort(reason)
  }

  /** One of hundreds at once: each promise that it waits for is garbage that outlives the young generation's next sweep. */
  async #run(attempt: Attempt): Promise<void> {
    const { job } = attempt
    const atStart = reach('attempt.start', job)
    if (atStart !== undefined) await atStart
    const outcome = await attempt.run()
    const held = outcome.kind === 'readmit' ? outcome.place.held : 'held' in outcome ? outcome.held : undefined
    if (held !== undefined) this.putOff++
    else if (outcome.kind === 'return' || outcome.kind === 'unused') this.returned++
    else if (outcome.kind === 'readmit' || outcome.kind === 'denied') this.readmitted++
    const atEnd = reach('attempt.end', job)
    if (atEnd !== undefined) await atEnd
    const ending = this.#finisher.end(job, outcome)
    this.#running.delete(attempt)
    this.look()
    await ending
    // A sleeping dispatcher was told when to wake before this job had a time of its own.
    if (outcome.kind !== 'done' && outcome.kind !== 'failed') this.#back()
    this.look()
  }

  /** Something has changed that who waits here waits for. */
  look(): void {
    for (const look of this.#waiters) look()
  }
}

/** The outlet in this process: a number of slots, each with one attempt. */
import { reach } from '../core/probe.ts'
import type { Handout } from '../dispatch/handout.ts'
import type { Finisher } from '../dispatch/finish.ts'
import type { Outlet } from '../dispatch/outlet.ts'
import type { Attempt } from './attempt.ts'
import type { Stuck } from './stuck.ts'
import type { Throttle } from './throttle.ts'

/** Runs up to `slots` attempts at once. */
export class Slots implements Outlet {
  readonly #slots: number
  readonly #finisher: Finisher
  readonly #attempt: (job: Handout) => Attempt
  readonly #back: () => void
  readonly #stuck: Stuck
  readonly #throttle: Throttle | undefined
  readonly #running = new Set<Attempt>()
  readonly #waiters = new Set<() => void>()

  /** @param back told when a job went back to the store, to be run again now or later */
  constructor(
    slots: number,
    finisher: Finisher,
    attempt: (job: Handout) => Attempt,
    back: () => void,
    stuck: Stuck,
    throttle?: Throttle,
  ) {
    this.#slots = slots
    this.#finisher = finisher
    this.#attempt = attempt
    this.#back = back
    this.#stuck = stuck
    this.#throttle = throttle
  }

  /** Jobs that were given back uncalled so far. */
  returned = 0

  /** Jobs that rules, or their handlers, put off so far. */
  putOff = 0

  /** Jobs that went back so far to wait for limits that they had not waited for. */
  readmitted = 0

  /** Attempts under way. */
  get running(): number {
    return this.#running.size
  }

  free(): number {
    return Math.min(this.#empty(), this.#throttle?.most() ?? Infinity)
  }

  /** Slots with nothing in them. */
  #empty(): number {
    if (this.#stuck.isTooMany) return 0
    // Endings wait for the store: when it is slow, no more than one round of them may pile up.
    const piled = Math.max(0, this.#finisher.backlog - this.#slots)
    return Math.max(0, this.#slots - this.#running.size - piled)
  }

  freed(least: number, signal?: AbortSignal): Promise<void> {
    return this.#when(() => this.#isFree(least), signal)
  }

  /** Whether so many are free; where only the throttle is in the way, it is looked at again when it lets one more begin. */
  #isFree(least: number): boolean {
    const most = this.#throttle?.most() ?? Infinity
    const isEmpty = this.#empty() >= least
    if (isEmpty && most === 0) this.#throttle?.tell(() => this.look())
    return isEmpty && most >= least
  }

  /** Resolves when no attempt is under way. */
  idle(): Promise<void> {
    return this.#when(() => this.#running.size === 0)
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
    const attempts = jobs.map((job) => this.#attempt(job))
    // All of them before the first begins: whatever that does at once, their slots are taken.
    for (const attempt of attempts) this.#running.add(attempt)
    // After the dispatcher has asked for more: the store works on that meanwhile.
    setImmediate(() => {
      for (const attempt of attempts) void this.#run(attempt)
    })
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
    else if (outcome.kind === 'readmit') this.readmitted++
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

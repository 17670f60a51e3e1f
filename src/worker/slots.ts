/** The outlet in this process: a number of slots, each with one attempt. */
import { reach } from '../core/probe.ts'
import type { Handout } from '../dispatch/claim.ts'
import type { Finisher } from '../dispatch/finish.ts'
import type { Outlet } from '../dispatch/outlet.ts'
import type { Attempt } from './attempt.ts'
import type { Stuck } from './stuck.ts'

/** Runs up to `slots` attempts at once. */
export class Slots implements Outlet {
  readonly #slots: number
  readonly #finisher: Finisher
  readonly #attempt: (job: Handout) => Attempt
  readonly #back: () => void
  readonly #stuck: Stuck
  readonly #running = new Set<Attempt>()
  readonly #waiters = new Set<() => void>()

  /** @param back told when a job went back to the store, to be run again now or later */
  constructor(slots: number, finisher: Finisher, attempt: (job: Handout) => Attempt, back: () => void, stuck: Stuck) {
    this.#slots = slots
    this.#finisher = finisher
    this.#attempt = attempt
    this.#back = back
    this.#stuck = stuck
  }

  /** Jobs that were given back uncalled so far. */
  returned = 0

  /** Jobs that went back so far to wait for limits that they had not waited for. */
  readmitted = 0

  /** Attempts under way. */
  get running(): number {
    return this.#running.size
  }

  free(): number {
    if (this.#stuck.isTooMany) return 0
    // Endings wait for the store: when it is slow, no more than one round of them may pile up.
    const piled = Math.max(0, this.#finisher.backlog - this.#slots)
    return Math.max(0, this.#slots - this.#running.size - piled)
  }

  freed(least: number, signal?: AbortSignal): Promise<void> {
    return this.#when(() => this.free() >= least, signal)
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
    this.#finisher.opened(jobs)
    for (const job of jobs) void this.#run(job)
  }

  /** The attempts under way now. */
  attempts(): readonly Attempt[] {
    return [...this.#running]
  }

  /** Gives up all attempts: their signals abort; what they still do is fenced off. */
  abandon(reason: Error): void {
    for (const attempt of this.#running) attempt.abort(reason)
  }

  async #run(job: Handout): Promise<void> {
    const attempt = this.#attempt(job)
    this.#running.add(attempt)
    await reach('attempt.start', job)
    const outcome = await attempt.run()
    if (outcome.kind === 'return' || outcome.kind === 'unused') this.returned++
    if (outcome.kind === 'readmit') this.readmitted++
    await reach('attempt.end', job)
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

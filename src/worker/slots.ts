/** The outlet in this process: a number of slots, each with one attempt. */
import { reach } from '../core/probe.ts'
import type { Handout } from '../dispatch/claim.ts'
import type { Finisher } from '../dispatch/finish.ts'
import type { Outlet } from '../dispatch/outlet.ts'
import type { Attempt } from './attempt.ts'

/** Runs up to `slots` attempts at once. */
export class Slots implements Outlet {
  readonly #slots: number
  readonly #finisher: Finisher
  readonly #attempt: (job: Handout) => Attempt
  readonly #running = new Set<Attempt>()
  readonly #waiters = new Set<() => void>()

  constructor(slots: number, finisher: Finisher, attempt: (job: Handout) => Attempt) {
    this.#slots = slots
    this.#finisher = finisher
    this.#attempt = attempt
  }

  /** Jobs that were given back uncalled so far. */
  returned = 0

  /** Attempts under way. */
  get running(): number {
    return this.#running.size
  }

  free(): number {
    // Endings wait for the store: when it is slow, no more than one round of them may pile up.
    const piled = Math.max(0, this.#finisher.backlog - this.#slots)
    return Math.max(0, this.#slots - this.#running.size - piled)
  }

  freed(least: number, signal: AbortSignal): Promise<void> {
    if (this.free() >= least || signal.aborted) return Promise.resolve()
    return new Promise((resolve) => {
      const look = () => {
        if (this.free() < least && !signal.aborted) return
        this.#waiters.delete(look)
        signal.removeEventListener('abort', look)
        resolve()
      }
      this.#waiters.add(look)
      signal.addEventListener('abort', look)
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
    await reach('attempt.end', job)
    const ending = this.#finisher.end(job, outcome)
    this.#running.delete(attempt)
    this.#look()
    await ending
    this.#look()
  }

  #look(): void {
    for (const look of this.#waiters) look()
  }
}

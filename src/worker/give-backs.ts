/** Bounds how often this process gives a job back uncalled, for a reason that may or may not pass. */
const timesMax = 10
const jobsMax = 10_000

/**
 * Counts how often each job was given back, so that it fails visibly instead of being claimed and given back for ever.
 */
export class GiveBackCounter {
  readonly #times = new Map<string, number>()

  /** Counts one more return of this job; returns false when there were too many. */
  spend(id: string): boolean {
    const times = (this.#times.get(id) ?? 0) + 1
    this.#times.delete(id)
    if (times > timesMax) return false
    this.#times.set(id, times)
    // Most jobs continue in another worker, and this one sees nothing more of them.
    if (this.#times.size > jobsMax) this.#times.delete(this.#times.keys().next().value as string)
    return true
  }

  /** Resets the count: the job has run. */
  forget(id: string): void {
    this.#times.delete(id)
  }
}
